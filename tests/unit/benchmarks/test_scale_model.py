import pytest

from benchmarks.scale_model import Limit, consumer_rate, group_rate, limits

COST = {"main": 10.0, "worker": 50.0, "maintenance": 0.0, "PostgreSQL": 20.0, "Valkey": 5.0}
CORES = {"PostgreSQL": 16, "Valkey": 1, "broker": 24}


def test_a_consumer_is_as_fast_as_its_workers_until_its_main_process_is_full() -> None:
    assert consumer_rate(COST, 2) == pytest.approx(40_000)
    assert consumer_rate(COST, 4) == pytest.approx(80_000)
    assert consumer_rate(COST, 8) == pytest.approx(100_000)
    assert consumer_rate(COST | {"maintenance": 25.0}, 8) == pytest.approx(40_000)
    with pytest.raises(ValueError, match="empty"):
        consumer_rate({"PostgreSQL": 3.0}, 2)


def test_the_service_that_saturates_first_comes_first() -> None:
    assert limits(COST, 2, CORES) == [
        Limit("Valkey", pytest.approx(200_000), pytest.approx(5)),
        Limit("PostgreSQL", pytest.approx(800_000), pytest.approx(20)),
    ]


def test_a_group_does_what_its_consumers_do_until_a_service_is_full() -> None:
    rates = [group_rate(COST, consumers, 2, CORES) for consumers in (1, 4, 5, 100)]
    assert rates == pytest.approx([40_000, 160_000, 200_000, 200_000])
