"""Acts as a router before several servers: sessions stay at one, or go to each in turn.

With `--prefill` and `--decode` a request goes to one that prefills first, for one token.
"""

import json
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

TURN = count()


def after(name: str) -> list[str]:
    """The words behind a flag, as often as it is there."""
    words = sys.argv
    return [words[n + 1] for n, word in enumerate(words) if word == name]


def chosen(urls: list[str], session: str) -> str:
    if "--forgetful" in sys.argv:
        return urls[next(TURN) % len(urls)]
    return urls[sum(session.encode()) % len(urls)]


class Passes(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.say(200, b"{}")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        session = self.headers["X-Session-ID"]
        if prefill := after("--prefill"):
            one = json.dumps({**json.loads(body), "max_tokens": 1}).encode()
            self.asked(chosen(prefill, session), one)
        told = self.asked(chosen(after("--decode") or after("--to"), session), body)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def asked(self, url: str, body: bytes) -> bytes:
        kind = {"Content-Type": "application/json"}
        post = urllib.request.Request(url + self.path, data=body, headers=kind, method="POST")
        with urllib.request.urlopen(post, timeout=60) as answer:
            return answer.read()

    def say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer((after("--host")[0], int(after("--port")[0])), Passes)
    server.daemon_threads = True
    server.serve_forever()
