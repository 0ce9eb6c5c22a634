"""Which files of an archive are published when, and joined with which."""

from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.spark.jobs.archive_state import OpenFile, plan_merges


def waiting(*sizes: int, partition: str = "p", since_ms: int = 1000) -> list[OpenFile]:
    return [OpenFile(f"{partition}-{n}", partition, size, since_ms) for n, size in enumerate(sizes)]


def test_nothing_is_published_that_is_neither_large_nor_old() -> None:
    assert plan_merges(waiting(10, 20), file_bytes=100, until_ms=999) == []


def test_what_fills_a_file_is_joined() -> None:
    (merge,) = plan_merges(waiting(40, 40, 40), file_bytes=100, until_ms=999)
    assert [each.size for each in merge.files] == [40, 40, 40]


def test_what_is_old_is_joined_however_small() -> None:
    (merge,) = plan_merges(waiting(1, 2), file_bytes=100, until_ms=1000)
    assert len(merge.files) == 2


def test_a_large_file_is_not_written_again() -> None:
    merges = plan_merges(waiting(60, 10, 45), file_bytes=100, until_ms=None)
    assert [[each.size for each in merge.files] for merge in merges] == [[60], [10, 45]]


@given(
    st.lists(st.tuples(st.integers(1, 300), st.sampled_from("ab")), max_size=40),
    st.sampled_from([None, 0, 2000]),
)
def test_no_file_is_in_two_merges_and_none_is_lost(
    files: list[tuple[int, str]], until_ms: int | None
) -> None:
    every = [OpenFile(f"{n}", kind, size, 1000) for n, (size, kind) in enumerate(files)]
    merges = plan_merges(every, file_bytes=100, until_ms=until_ms)
    used = [each for merge in merges for each in merge.files]
    assert len(used) == len(set(used))
    assert all(each.partition == merge.partition for merge in merges for each in merge.files)
    assert all(
        sum(each.size for each in merge.files) < 200 for merge in merges if len(merge.files) > 1
    )
    if until_ms != 0:
        assert set(used) == set(every)
