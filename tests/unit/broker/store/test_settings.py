from typing import Any

import pytest

from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.errors import InvalidSetting


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flush_disk_type", "never"),
        ("message_bytes_max", 0),
        ("commit_log_segment_bytes", -1),
        ("consume_queue_segment_entries", 1.5),
        ("index_slots", 0),
        ("index_entries_max", True),
        ("checkpoint_bytes", 0),
        ("disk_free_bytes_enough", -1),
        ("sync_flush_timeout", 0),
        ("flush_interval", 0),
        ("os_page_cache_busy_timeout", -1.0),
        ("checkpoint_interval", "1"),
        ("file_reserved_time", float("nan")),
        ("clean_interval", None),
        ("disk_space_clean_forcibly_ratio", 1.1),
        ("disk_space_warning_ratio", 0),
        ("delay_levels", ()),
        ("delay_levels", (1.0, -1.0)),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidSetting, match=name):
        StoreSettings(**{name: value})
