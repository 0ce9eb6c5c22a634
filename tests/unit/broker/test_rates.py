"""How much goes in and out, per second and day."""

import asyncio

from rocketpipe.broker.rates import SAMPLE_INTERVAL, SPANS, Rates
from rocketpipe.broker.store.message_store import StoreStats
from rocketpipe.testing.simulated_loop import SimulatedClock, run


def test_rates_are_of_the_last_ten_seconds_minute_and_ten_minutes() -> None:
    async def main() -> None:
        stats = StoreStats()
        rates = Rates(stats, SimulatedClock(asyncio.get_running_loop()))
        assert rates.describe("put") == "0.0 0.0 0.0"

        async def seconds(count: int, *, put: int, read: int = 0) -> None:
            for _ in range(count):
                await asyncio.sleep(SAMPLE_INTERVAL)
                stats.messages_put += put
                stats.messages_read += read
                stats.reads_found += 2
                stats.reads_missed += 1
                rates.sample()

        await seconds(5, put=10)
        assert rates.describe("put") == "10.0 10.0 10.0"
        await seconds(595, put=0)
        assert [round(float(text), 3) for text in rates.describe("put").split()] == [0, 0, 0.083]
        await seconds(10, put=6, read=3)
        assert [round(float(text), 3) for text in rates.describe("put").split()] == [6, 1, 0.1]
        assert rates.describe("transferred").split()[0] == "3.0"
        assert rates.describe("found", "missed").split()[0] == "3.0"

    run(main())


def test_groups_have_rates_of_their_own_that_fade() -> None:
    async def main() -> None:
        rates = Rates(StoreStats(), SimulatedClock(asyncio.get_running_loop()))
        rates.read("readers", "orders", 60)
        assert rates.group_get_tps("readers", "orders") == 60.0  # as of a second at least
        for _ in range(30):
            await asyncio.sleep(1)
            rates.sample()
        assert rates.group_get_tps("readers", "orders") == 2.0
        assert rates.group_get_tps("others", "orders") == 0.0
        assert rates.group_get_tps("readers", "bills") == 0.0
        for _ in range(60):
            await asyncio.sleep(1)
            rates.sample()
        assert rates.group_get_tps("readers", "orders") == 0.0
        for _ in range(300):
            await asyncio.sleep(1)
            rates.read("readers", "orders", 1)
            rates.sample()
            assert rates.group_get_tps("readers", "orders") <= 1.0
        assert rates.group_get_tps("readers", "orders") > 0.95

    run(main())


class SetClock:
    """A clock that stands until it is set."""

    now = 1_750_000_000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)


def test_totals_are_remembered_at_midnight() -> None:
    stats, clock = StoreStats(), SetClock()
    rates = Rates(stats, clock)
    for put, read in ((100, 10), (40, 7)):
        stats.messages_put += put
        stats.messages_read += read
        clock.now += 24 * 3600
        rates.sample()
        rates.sample()  # on the same day, which changes nothing
    assert (rates.put_yesterday_morning, rates.put_this_morning) == (100, 140)
    assert (rates.got_yesterday_morning, rates.got_this_morning) == (10, 17)


def test_what_groups_got_is_counted_for_a_minute_an_hour_and_a_day() -> None:
    clock = SetClock()
    rates = Rates(StoreStats(), clock)

    def told() -> list[int]:
        return [count for count, _ in rates.group_gets("readers", "orders")]

    def pass_seconds(seconds: int) -> None:
        for _ in range(seconds // 5):
            clock.now += 5
            rates.sample()

    rates.read("readers", "orders", 7)
    assert told() == [7, 7, 7]
    pass_seconds(30)
    assert told() == [7, 7, 7]
    rates.read("readers", "orders", 2)
    pass_seconds(120)
    assert told() == [0, 9, 9]
    pass_seconds(3000)
    rates.read("readers", "orders", 4)
    assert told() == [4, 13, 13]
    pass_seconds(4500)
    assert told() == [0, 0, 13]
    pass_seconds(23 * 3600)
    assert told() == [0, 0, 0]
    spans = [seconds for _, seconds in rates.group_gets("readers", "orders")]
    # With what has begun of another period.
    assert all(s <= t < 1.2 * s for s, t in zip(SPANS, spans, strict=True))
