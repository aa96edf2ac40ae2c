"""Command lines of vLLM: topologies, arms and knobs, word for word in tests/golden/vllm."""

import json
import shlex
from pathlib import Path

import pytest

from harness.engine import Deployment
from harness.topology import parse
from harness.vllm import devices
from harness.vllm.engine import Vllm
from harness.vllm.flags import read
from harness.vllm.nodes import launches
from results.errors import UnsupportedError

GOLDEN = Path(__file__).parent / "golden/vllm"

BIG = {"recipe": "deepseek-v4.1", "max_batched_tokens": 8192, "max_sequences": 128}
RACK = {"gpus_per_node": 4, "interface": "eth0"}
FLASHINFER = {
    "attention": "FLASHINFER_MLA_SPARSE_DSV41",
    "kv_format": "fp8",
    "sparse_logits": True,
}
MEGA = {
    "attention": "FLASHMLA_MEGA_ATTN_DSV41",
    "kv_format": "nvfp4_ds_mla",
    "moe": "deep_gemm_mega_moe",
}

CASES = {
    "TP4": ("TP4", "on", BIG | FLASHINFER | {"engram": "host", "speculation": "synthetic"}),
    "TP4-off": ("TP4", "off", BIG),
    "TP4-on-eager": ("TP4", "on-eager", BIG | {"graphs": "FULL_AND_PIECEWISE"}),
    "DEP2": ("DEP2", "on", BIG | MEGA | {"engram": "host-thp", "speculation": "real"}),
    "DEP8": ("DEP8", "on", BIG | {"eplb": True, "redundant_experts": 8, "capture_size": 1024}),
    "DEP8-port": ("DEP8", None, BIG | {"affinity": "port"}),
    "DEP8-router": ("DEP8", None, BIG | {"affinity": "router"}),
    "DEP32": ("DEP32", "on", BIG | RACK),
    "DEP32-router": ("DEP32", "on", BIG | RACK | {"affinity": "router"}),
    "TP2xPP3": ("TP2xPP3", None, BIG | {"layer_partition": (14, 14, 12)}),
    "4xDEP2+1xDEP32": (
        "4xDEP2+1xDEP32",
        "on",
        {"recipe": "deepseek-v4.1", **RACK}
        | {"prefill_flags": ("--max-num-batched-tokens", "8192")}
        | {"decode_flags": ("--max-num-batched-tokens", "64", "--max-num-seqs", "8")},
    ),
    "TP1-forced": ("TP1", None, {"model": "m", "forced_outputs": True, "prefix_caching": False}),
}


def described(topology, replay=None, flags=(), **settings):
    vllm = Vllm(python="env/bin/python", **settings)
    deployment = Deployment(engine=vllm, topology=parse(topology), replay=replay, flags=flags)
    return vllm.describe(deployment)


def words(topology, replay=None, flags=(), **settings):
    (line,) = described(topology, replay, flags, **settings)
    return shlex.split(line)


def after(line, flag):
    """The word after a flag that is there once."""
    assert line.count(flag) == 1
    return line[line.index(flag) + 1]


@pytest.mark.parametrize("name", CASES)
def test_a_command_line_is_word_for_word_as_it_was(name):
    topology, replay, settings = CASES[name]
    made = "\n".join(described(topology, replay, **settings)) + "\n"
    assert made == (GOLDEN / f"{name}.txt").read_text()


def test_there_is_no_golden_file_without_a_case():
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(CASES)


@pytest.mark.parametrize("replay", ["off", "on-eager", "on"])
def test_a_replay_arm_pins_the_capture_size(replay):
    assert after(words("TP4", replay), "--max-cudagraph-capture-size") == "512"
    stated = words("TP4", replay, capture_size=1024)
    assert after(stated, "--max-cudagraph-capture-size") == "1024"
    assert "--max-cudagraph-capture-size" not in words("TP4")


def test_what_compiles_is_said_in_one_mapping():
    line = words("TP4", "on-eager", graphs="PIECEWISE")
    assert json.loads(after(line, "--compilation-config")) == {
        "cudagraph_decoder_replay": False,
        "cudagraph_mode": "PIECEWISE",
    }


@pytest.mark.parametrize(
    ("flags", "settings"),
    [
        (["-cc", "{}"], {"graphs": "FULL"}),
        (["-cc.cudagraph_mode=NONE"], {"graphs": "FULL"}),
        (["--compilation_config={}"], {"graphs": "FULL"}),
        (["-tp", "2"], {}),
        (["--port", "1"], {}),
        (["--no-enable-prefix-caching"], {"prefix_caching": True}),
    ],
)
def test_a_flag_that_is_said_by_name_too_is_refused(flags, settings):
    with pytest.raises(UnsupportedError, match="take it out of one of them"):
        described("TP4", flags=tuple(flags), **settings)


def test_an_arm_and_a_flag_that_would_undo_it_are_refused():
    with pytest.raises(UnsupportedError, match="--swa-bounded-replay, and so do"):
        described("TP4", "off", flags=("--swa-bounded-replay",))
    with pytest.raises(UnsupportedError, match="--compilation-config, and so do"):
        described("TP4", "on-eager", flags=("-cc", "{}"))


def test_any_other_flag_passes_through_and_a_recipe_gives_way_to_it():
    own = {"recipe": "deepseek-v4.1", "environment": {"X": "1 2"}}
    line = words("TP4", flags=("--max-model-len", "4096", "--new-flag"), **own)
    assert "X=1 2" in line
    assert after(line, "--max-model-len") == "4096"
    assert line[-3:] == ["--max-model-len", "4096", "--new-flag"]


@pytest.mark.parametrize(
    ("placement", "topology", "config"),
    [
        ("device", "TP4", {"cpu_offload": False}),
        ("host", "DEP2", {"cpu_offload": True}),
        ("host-private", "DEP2", {"cpu_offload": True, "dp_shared_memory": False}),
        ("host-thp", "TP4", {"cpu_offload": True, "use_thp": True}),
        ("host-thp", "DEP2", {"cpu_offload": True, "use_thp": True, "dp_shared_memory": False}),
        ("across-ranks", "DEP2", {"cpu_offload": True, "embedding_across_dp": True}),
    ],
)
def test_an_engram_lies_where_it_is_placed(placement, topology, config):
    line = words(topology, engram=placement)
    assert json.loads(after(line, "--engram-config")) == config


def test_sparse_logits_need_no_format_of_their_own_and_can_be_turned_off():
    on = json.loads(after(words("TP4", sparse_logits=True), "--attention-config"))
    off = json.loads(after(words("TP4", sparse_logits=False), "--attention-config"))
    assert on == {"indexer_kv_dtype": "mxfp4", "indexer_sparse_logits": True}
    assert off == {"indexer_sparse_logits": False}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"forced_outputs": True, "speculation": "real"}, "exclude each other"),
        ({"acceptance_length": 6.5}, "write 1 to 6"),
        ({"acceptance_length": 0.5}, "write 1 to 6"),
        ({"redundant_experts": 2}, "write eplb: true"),
        ({"sparse_logits": True, "index_format": "fp8"}, "needs index_format mxfp4"),
    ],
)
def test_knobs_that_contradict_each_other_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        Vllm(**settings)


@pytest.mark.parametrize(
    ("topology", "replay", "settings", "sentence"),
    [
        ("TP4", "on", {"graphs": "eager"}, "write replay: on-eager"),
        ("TP4", "on", {"graphs": "NONE"}, "write replay: on-eager"),
        ("TP4", None, {"eplb": True}, "eplb needs experts that are spread"),
        ("TP4", None, {"moe": "deep_gemm_mega_moe"}, "deep_gemm_mega_moe needs experts"),
        ("TP3", None, {}, "splits 64 attention heads by 3"),
        ("PP41", None, {}, "more stages than the model's 40 layers"),
        ("DEP400", None, {}, "spreads 384 experts over 400 ranks"),
        ("DEP10", None, {"eplb": True}, "write redundant_experts: 6"),
        ("DEP10", None, {"eplb": True, "redundant_experts": 1}, "write redundant_experts: 6"),
        ("TP2xPP3", None, {"layer_partition": (20, 20)}, "has 2 parts and TP2xPP3 has 3 stages"),
        ("TP2xPP3", None, {"layer_partition": (14, 14, 14)}, "has 42 layers and the model has 40"),
        ("1xTP3+1xTP1", None, {}, "TP3 splits 64 attention heads"),
    ],
)
def test_what_does_not_go_together_is_refused_before_a_start(topology, replay, settings, sentence):
    with pytest.raises(UnsupportedError, match=sentence):
        described(topology, replay, **settings)


def test_a_model_is_measured_by_its_own_configuration(tmp_path):
    config = {"text_config": {"num_attention_heads": 6, "n_routed_experts": 4}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert described("TP3", model=str(tmp_path))
    with pytest.raises(UnsupportedError, match="splits 6 attention heads by 4"):
        described("TP4", model=str(tmp_path))
    with pytest.raises(UnsupportedError, match="spreads 4 experts over 8"):
        described("DEP8", model=str(tmp_path))


def test_a_model_that_nobody_knows_fits_everywhere():
    assert described("TP3xPP99", model="somebody/model")


def test_what_the_help_lacks_is_left_out_only_where_it_is_to_measure_by():
    vllm = Vllm(python="env/bin/python", model="m", port=9)
    known = read("--host\n--port\n--served-model-name\n--tensor-parallel-size\n")
    deployment = Deployment(engine=vllm, topology=parse("TP2"))
    (launch,) = launches(vllm, deployment, known)
    assert list(launch.words[3:]) == shlex.split(
        "m --host 127.0.0.1 --port 9 --served-model-name vllm --tensor-parallel-size 2"
    )
    replayed = Deployment(engine=vllm, topology=parse("TP2"), replay="off")
    with pytest.raises(UnsupportedError, match=r"has no --no-swa-bounded-replay, .* 0\.32\.0 has"):
        launches(vllm, replayed, known)


@pytest.mark.parametrize(
    ("count", "mask", "seen"),
    [
        (8, None, 8), (8, "", 0), (8, "0,1", 2), (8, "7", 1), (2, "0,5,1", 1), (8, "0,-1,1", 1),
        (8, "GPU-ab,MIG-c", 2), (None, "0", None),
    ],
)  # fmt: skip
def test_a_mask_ends_at_the_first_gpu_that_is_none(count, mask, seen):
    assert devices.visible(count, mask) == seen


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"flags": ("--api-key", "sk-1")}, "--api-key"),
        ({"decode_flags": ("--hf-token=hf_1",)}, "--hf-token"),
        ({"environment": {"HF_TOKEN": "hf_1"}}, "HF_TOKEN"),
        ({"environment": {"AWS_SECRET_ACCESS_KEY": "hf_1"}}, "AWS_SECRET_ACCESS_KEY"),
        ({"environment": {"http_proxy": "http://me:hf_1@proxy:1"}}, "http_proxy"),
        ({"router": "vllm-router --api-key sk-1 --port {port}"}, "--api-key"),
        ({"launcher": "sshpass -p hf_1 ssh {host}"}, "sshpass -p"),
        ({"launcher": "/usr/bin/sshpass -v -P word -phf_1 ssh {host}"}, "sshpass -p"),
        ({"launcher": "sh -c 'sshpass -p hf_1 ssh {host}'"}, "sshpass -p"),
        ({"launcher": "plink -batch -pw hf_1 {host}"}, "plink -pw"),
        ({"launcher": "env SSHPASS=hf_1 sshpass -e ssh {host}"}, "SSHPASS"),
        ({"launcher": "ssh {host} ALL_PROXY=socks5://me:hf_1@proxy:1"}, "ALL_PROXY"),
        ({"launcher": "tunnel --by http://me:hf_1@proxy:1 {host}"}, "--by"),
        ({"launcher": "curl http://me:hf_1@{host}"}, "a word without an option"),
        ({"launcher": "curl -su me:hf_1 http://{host}"}, "curl -u"),
        ({"launcher": "curl -H 'Authorization: Bearer hf_1' http://{host}"}, "launcher"),
        ({"launcher": "srun --export=ALL,HF_TOKEN=hf_1 -w {host}"}, "--export"),
        ({"launcher": "docker run --env=HF_TOKEN=hf_1 {host}"}, "--env"),
        ({"launcher": "docker run -e HF_TOKEN=hf_1 {host}"}, "-e"),
        ({"launcher": "docker run -eHF_TOKEN=hf_1 {host}"}, "-eHF_TOKEN"),
        ({"flags": ("--api-keys", "hf_1")}, "--api-keys"),
        ({"flags": ("--api-key", "-hf_1")}, "--api-key"),
        (
            {"flags": ("--kv-transfer-config", '{"extra": {"secret_key": "hf_1=="}}')},
            "--kv-transfer-config",
        ),
        ({"flags": ("--otlp-traces-endpoint", "http://h/?api_key=hf_1")}, "--otlp-traces-endpoint"),
        ({"environment": {"DB_PASS": "hf_1"}}, "DB_PASS"),
        ({"environment": {"MYSQL_PWD": "hf_1"}}, "MYSQL_PWD"),
        ({"environment": {"GITHUB_PAT": "hf_1"}}, "GITHUB_PAT"),
        ({"environment": {"HF_TOKEN_2": "hf_1"}}, "HF_TOKEN_2"),
        ({"environment": {"OTLP_HEADERS": "authorization=Bearer hf_1"}}, "OTLP_HEADERS"),
        ({"environment": {"OTLP_HEADERS": "a=b,api-key=hf_1"}}, "OTLP_HEADERS"),
        ({"model": "https://me:hf_1@models/m"}, "model"),
    ],
)
def test_a_secret_is_refused_where_it_would_be_copied_into_run_folders(settings, name):
    with pytest.raises(
        ValueError, match=f"^{name} holds a secret.* which servers inherit$"
    ) as caught:
        Vllm(**settings)
    assert "hf_1" not in str(caught.value)


@pytest.mark.parametrize(
    "launcher",
    [
        "ssh -p 22 me@{host}",
        "sshpass -e ssh -p 22 {host}",
        "sshpass -f .password ssh -p 22 {host}",
        "env FAKE_NODE={host} sh -c",
    ],
)
def test_a_launcher_whose_password_stands_elsewhere_is_taken(launcher):
    assert Vllm(launcher=launcher, nodes=("a",)).launcher == launcher


@pytest.mark.parametrize(
    "settings",
    [
        {"flags": ("--image-token", "<image>", "--chat-template", "Basic x")},
        {"flags": ("--override-generation-config", '{"eos_token": 151643, "api_key": null}')},
        {
            "flags": (
                "--api-key-file",
                "/etc/key",
                "--otlp-traces-endpoint",
                "http://h/?api-version=2",
            )
        },
        {"environment": {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "MOST_IN_TOKEN": "4"}},
        {"environment": {"VLLM_CACHE_KEY": "v1", "TORCHINDUCTOR_CACHE_KEY": "x"}},
    ],
)
def test_what_is_only_called_nearly_as_a_secret_is_taken(settings):
    vllm = Vllm(**settings)
    assert {name: getattr(vllm, name) for name in settings} == settings


def test_a_secret_of_a_deployment_is_refused_and_a_flag_without_one_is_not():
    with pytest.raises(UnsupportedError, match="--hf-token holds a secret"):
        words("TP4", flags=("--hf-token", "hf_1"))
    assert words("TP4", flags=("--hf-token", "--max-num-seqs", "8"))
    vllm = Vllm(python="p", model=None)
    held = Deployment(engine=vllm, topology=parse("TP1"), model="https://me:hf_x9@host/m")
    with pytest.raises(UnsupportedError, match="model holds a secret"):
        vllm.describe(held)
