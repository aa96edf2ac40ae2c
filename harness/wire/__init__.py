"""Requests over HTTP: their words, their bytes, and what the streams that answer them say."""
