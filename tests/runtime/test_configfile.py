"""The configuration file: what it may say, and what is refused before anything starts."""

from pathlib import Path

import pytest

from unicron.controlplane.runtime import service
from unicron.controlplane.runtime.configfile import read_configuration
from unicron.events import ConfigError, DeviceSpeed, Planning, Quota

ALL = """
[planning]
node_mtbf_ms = 2_592_000_000
repair_ms = 14_400_000
link_bytes_per_s = 20_000_000_000
measured_step_times = false

[[planning.quotas]]
tenant = "research"
max_devices = 64

[[planning.quotas]]
tenant = "research"
max_devices = 8
kind = "h100"

[[planning.devices]]
kind = "h100"
gflops = 410_000
link_bytes_per_s = 40_000_000_000
"""


def written(tmp_path, text, name="unicron.toml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_every_key_is_read(tmp_path):
    assert read_configuration(written(tmp_path, ALL)).planning == Planning(
        quotas=(
            Quota(tenant="research", max_devices=64),
            Quota(tenant="research", max_devices=8, kind="h100"),
        ),
        devices=(DeviceSpeed(kind="h100", gflops=410_000, link_bytes_per_s=40_000_000_000),),
        node_mtbf_ms=2_592_000_000,
        repair_ms=14_400_000,
        link_bytes_per_s=20_000_000_000,
        measured_step_times=False,
    )


def test_every_key_may_be_left_out(tmp_path):
    assert read_configuration(written(tmp_path, "")).planning == Planning()
    assert read_configuration(written(tmp_path, "{}", "unicron.json")).planning == Planning()


def test_the_page_names_every_key_and_its_example_is_read(tmp_path):
    page = Path("docs/configuration.md").read_text()
    example = page.split("```toml\n")[1].split("```")[0]
    planning = read_configuration(written(tmp_path, example)).planning
    assert planning.quotas
    assert planning.devices
    for key in Planning.__struct_fields__:
        assert f"| `planning.{key}` |" in page, key
    for struct in (Quota, DeviceSpeed):
        assert all(f"`{key}`" in page for key in struct.__struct_fields__)


@pytest.mark.parametrize(
    "change,code,says",
    [
        (("repair_ms", "repiar_ms"), "E-UNKNOWN-KEY", "did you mean repair_ms?"),
        (("[planning]", "[plans]"), "E-UNKNOWN-KEY", "did you mean planning?"),
        (("max_devices = 64", "devices = 64"), "E-CONFIG-FILE", "max_devices"),
        (
            ("max_devices = 8", "max_devices = 8\nkinds = 1"),
            "E-UNKNOWN-KEY",
            "planning.quotas[1].kinds",
        ),
        (("gflops = 410_000", "gflops = 4.1"), "E-CONFIG-FILE", "planning.devices[0].gflops"),
        (("gflops = 410_000", "gflops = -1"), "E-CONFIG-FILE", "planning.devices[0].gflops is -1"),
        (("= 14_400_000", "= 9_999_999_999"), "E-CONFIG-FILE", "planning.repair_ms is 9999999999"),
        (("[planning]", "[planning"), "E-CONFIG-FILE", "not TOML"),
    ],
)
def test_a_slip_is_named_with_the_fix(tmp_path, change, code, says):
    assert change[0] in ALL
    path = written(tmp_path, ALL.replace(*change))
    with pytest.raises(ConfigError) as caught:
        read_configuration(path)
    assert caught.value.code == code
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "name,content,says",
    [
        ("deep.json", b"[" * 100_000, "nested too deeply"),
        ("deep.toml", b"a=" + b"[" * 5_000, "nested too deeply"),
        ("binary.toml", bytes(range(256)), "no text in UTF-8"),
        ("half.json", b'{"planning":{"devices":[{"kind":"\\ud800"}]}}', "no text in UTF-8"),
        ("half-key.json", b'{"planning":{"\\ud800":3}}', "no text in UTF-8"),
        ("twice.json", b'{"planning":{"repair_ms":1,"repair_ms":2}}', "'repair_ms' is there twice"),
        ("nan.json", b'{"planning":{"repair_ms":NaN}}', "planning.repair_ms"),
        (
            "nobody.json",
            b'{"planning":{"quotas":[{"tenant":"a\\n","max_devices":3}]}}',
            "printable",
        ),
        (
            "long.json",
            b'{"planning":{"quotas":[{"tenant":"%s","max_devices":3}]}}' % (b"x" * 65),
            "64",
        ),
    ],
)
def test_what_would_make_trouble_later_is_refused(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match="(?s)" + name + ".*" + says):
        read_configuration(tmp_path / name)


def test_what_never_ends_is_refused():
    with pytest.raises(ConfigError, match="larger than 16 MiB"):
        read_configuration("/dev/zero")


def test_more_than_one_event_takes_is_refused(tmp_path):
    devices = ",".join(f'{{"kind":"k{i}","gflops":3}}' for i in range(20_000))
    path = written(tmp_path, f'{{"planning":{{"devices":[{devices}]}}}}', "many.json")
    with pytest.raises(ConfigError, match="give fewer, up to 524288 bytes"):
        read_configuration(path)


def test_a_mark_of_utf_8_at_its_beginning_is_no_text(tmp_path):
    (tmp_path / "bom.toml").write_bytes(b"\xef\xbb\xbf[planning]\r\nrepair_ms = 0\r\n")
    assert read_configuration(tmp_path / "bom.toml").planning == Planning()


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="can't read the configuration file"):
        read_configuration(tmp_path / "none.toml")


def test_the_service_refuses_it_before_anything_starts(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("UNICRON_NATS", "nats://127.0.0.1:1")
    path = written(tmp_path, "[planning]\nrepair_ms = 5")
    assert service.main(["--cluster", "c", "--config", str(path)]) == 2
    assert "planning.repair_ms is 5" in capsys.readouterr().err
