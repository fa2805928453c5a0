"""What every place for snapshots promises; and what only the object store of a server can do."""

import asyncio

import msgspec
import pytest

from tests.contract.worlds import CLUSTER, ClusterWorld, JetStreamWorld, fact
from unicron.controlplane.runtime.jetstream import (
    ApiRefused,
    JetStreamLog,
    JetStreamSnapshots,
    NoAnswer,
    objects,
)
from unicron.controlplane.runtime.jetstream.stream import StreamInfo, stream_config
from unicron.controlplane.runtime.memory import MemorySnapshots
from unicron.controlplane.runtime.snapshot_folder import SnapshotFolder
from unicron.events import ConfigError, LogError, LogUnreachable, subjects

LARGE = bytes(range(256)) * 8_000  # some chunks
BUCKET = subjects.snapshot_bucket(CLUSTER)
STREAM = f"OBJ_{BUCKET}"


async def in_objects(world):
    await world.open()  # the bucket is kept where the log is
    return JetStreamSnapshots(await world.connection(), CLUSTER, apart=1, keep=2)


@pytest.fixture(
    params=[
        "memory",
        "folder",
        pytest.param("jetstream", marks=pytest.mark.real),
        pytest.param("three servers", marks=pytest.mark.real),
    ]
)
async def store(request, tmp_path):
    """It keeps two."""
    match request.param:
        case "memory":
            yield MemorySnapshots(keep=2)
        case "folder":
            yield SnapshotFolder(tmp_path / "kept", CLUSTER, keep=2)
        case "jetstream":
            async with JetStreamWorld(tmp_path) as world:
                yield await in_objects(world)
        case _:
            async with ClusterWorld(request.getfixturevalue("trio")) as world:
                yield await in_objects(world)


@pytest.fixture
async def objects_of(nats: JetStreamWorld):
    return await in_objects(nats)


async def test_at_first_there_is_none(store):
    assert await store.known() == []
    assert await store.load(7) is None


async def test_what_is_kept_is_found_again(store):
    await store.save(7, LARGE)
    await store.save(123_456_789_012, b"small")
    assert sorted(await store.known()) == [7, 123_456_789_012]
    assert await store.load(7) == LARGE
    assert await store.load(123_456_789_012) == b"small"


async def test_the_newest_are_kept(store):
    for seq in (1, 5, 9, 14):
        await store.save(seq, str(seq).encode())
    assert sorted(await store.known()) == [9, 14]
    assert await store.load(1) is None
    assert await store.load(9) == b"9"


async def test_it_has_a_name_and_says_where_it_is(store):
    assert store.name
    assert store.where


# --- On a server ----------------------------------------------------------------------------------


@pytest.mark.real
async def test_the_bucket_stays_small_and_outlives_the_server(nats, objects_of):
    for seq in range(1, 8):
        await objects_of.save(seq, LARGE)
    info = await objects_of._connection.api(f"STREAM.INFO.{STREAM}", None, dict)
    assert info["state"]["messages"] == 2 * (1 + len(LARGE) // (128 * 1024) + 1)
    assert info["config"]["storage"] == "file"
    await nats.server.kill()
    await nats.server.start()
    assert sorted(await (await in_objects(nats)).known()) == [6, 7]
    assert await (await in_objects(nats)).load(7) == LARGE


async def test_it_is_kept_on_as_many_servers_as_the_log(trio):
    async with ClusterWorld(trio) as world:
        found = await in_objects(world)
        await found.save(3, b"x")
        info = await found._connection.api(f"STREAM.INFO.{STREAM}", None, dict)
        assert info["config"]["num_replicas"] == 3


@pytest.mark.real
async def test_of_several_that_keep_the_same_one_does(nats):
    """All instances come to write at about the same time."""
    await nats.open()
    first = JetStreamSnapshots(await nats.connection(), CLUSTER, apart=1_000)
    second = JetStreamSnapshots(await nats.connection(), CLUSTER, apart=1_000)
    await first.save(999, b"too early")
    assert await first.known() == []
    await first.save(1_000, b"first")
    await second.save(1_003, b"second")
    assert await second.known() == [1_000]
    await asyncio.gather(first.save(2_000, LARGE), second.save(2_000, LARGE))
    assert await first.load(2_000) == LARGE


@pytest.mark.real
async def test_only_the_control_plane_writes_and_readers_read(nats, objects_of, monkeypatch):
    await objects_of.save(7, b"kept")
    monkeypatch.setattr(objects, "_LIMIT_S", 0.5)
    for url, may_read in ((nats.server.node_url, False), (nats.server.reader_url, True)):
        other = await nats.connection(url)
        theirs = JetStreamSnapshots(other, CLUSTER, apart=1)
        if may_read:
            assert (await theirs.known(), await theirs.load(7)) == ([7], b"kept")
        else:
            with pytest.raises(ConfigError, match="doesn't permit"):
                await theirs.known()
        with pytest.raises((ConfigError, LogUnreachable)):
            await theirs.save(9, b"forged")
        for subject in (f"$O.{BUCKET}.M.x", f"$JS.API.STREAM.PURGE.{STREAM}"):
            with pytest.raises(ConfigError, match="doesn't permit"):
                await other.request(subject, b"{}", limit_s=0.5)
    assert await objects_of.known() == [7]
    assert await objects_of.load(7) == b"kept"


@pytest.mark.real
async def test_what_else_lies_in_the_bucket_is_no_snapshot(objects_of):
    await objects_of.save(7, b"kept")
    connection = objects_of._connection
    for name in ("?", "bm90ZXM=", "MTI=", "w7bDtg=="):  # no base64, notes, 12, letters
        await connection.request(f"$O.{BUCKET}.M.{name}", b"?", limit_s=2)
    assert await objects_of.known() == [7]


@pytest.mark.real
async def test_one_that_lost_chunks_is_an_error_at_once(objects_of):
    await objects_of.save(7, LARGE)
    connection = objects_of._connection
    info = await (await objects_of._store()).get_info("000000000007")
    chunks = f"$O.{BUCKET}.C.{info.nuid}"
    for keep in (1, 0):
        await connection.api(f"STREAM.PURGE.{STREAM}", {"filter": chunks, "keep": keep}, dict)
        with pytest.raises(LogError, match="has lost parts of 000000000007") as raised:
            await objects_of.load(7)
        assert raised.value.why == f"{keep} of {info.chunks} are there"


@pytest.mark.real
async def test_one_that_loses_its_chunks_meanwhile_is_an_error_within_a_limit(
    objects_of, monkeypatch
):
    monkeypatch.setattr(objects, "_LIMIT_S", 0.5)
    await objects_of.save(7, LARGE)
    check = objects_of._check_chunks

    async def purge_then(info):
        await check(info)
        chunks = {"filter": f"$O.{BUCKET}.C.>"}
        await objects_of._connection.api(f"STREAM.PURGE.{STREAM}", chunks, dict)

    monkeypatch.setattr(objects_of, "_check_chunks", purge_then)
    with pytest.raises(NoAnswer):
        await objects_of.load(7)


@pytest.mark.real
async def test_one_whose_chunks_were_changed_is_an_error(objects_of):
    await objects_of.save(7, LARGE)
    store = await objects_of._store()
    info = await store.get_info("000000000007")
    connection = objects_of._connection
    await connection.request(f"$O.{BUCKET}.C.{info.nuid}", b"more", limit_s=2)
    with pytest.raises(LogError, match="refuses"):
        await objects_of.load(7)


@pytest.mark.real
async def test_a_server_that_is_away_gives_no_answer(nats, objects_of, monkeypatch):
    monkeypatch.setattr(objects, "_LIMIT_S", 0.5)
    await objects_of.save(7, b"kept")
    await nats.server.kill()
    for work in (objects_of.known(), objects_of.load(7), objects_of.save(9, b"x")):
        with pytest.raises(LogUnreachable):
            await work


@pytest.mark.real
async def test_reading_and_writing_leave_no_tasks(objects_of):
    await objects_of.save(7, LARGE)
    await objects_of.load(7)
    before = len(asyncio.all_tasks())
    for _ in range(10):
        await objects_of.load(7)
        await objects_of.save(8, b"x")
    assert len(asyncio.all_tasks()) <= before


# --- Holes in the log -----------------------------------------------------------------------------


@pytest.mark.real
async def test_the_first_missing_event_of_a_log_is_named(nats):
    """Only somebody who changes the stream's configuration can remove any."""
    connection = await nats.connection()
    config = msgspec.to_builtins(stream_config(CLUSTER, "b")) | {"deny_delete": False}
    name = subjects.stream_name(CLUSTER)
    info = await connection.api(f"STREAM.CREATE.{name}", config, StreamInfo)
    log = JetStreamLog(connection, CLUSTER, info, attempt_s=2.0, limit_s=5.0)
    for counter in range(1, 8):
        await log.append(*fact(counter), fence=None)
    assert await log.first_missing(7) == 0
    for seq in (5, 3):
        await connection.api(f"STREAM.MSG.DELETE.{name}", {"seq": seq}, dict)
    assert [await log.first_missing(upto) for upto in (2, 3, 4, 7)] == [0, 3, 3, 3]
    await connection.api(f"STREAM.MSG.DELETE.{name}", {"seq": 1}, dict)
    assert [await log.first_missing(upto) for upto in (0, 1, 7)] == [0, 1, 1]
    with pytest.raises(ApiRefused):
        await connection.api(f"STREAM.MSG.DELETE.{name}", {"seq": 1}, dict)
    await connection.close()
    with pytest.raises(LogUnreachable):
        await log.first_missing(7)


async def test_a_log_in_memory_misses_none(world):
    log = await world.open()
    assert await log.first_missing(0) == 0
    assert await log.first_missing(await log.last_seq()) == 0
