"""Leaving the strategy at work for a while."""

from __future__ import annotations

import pytest
import tensorflow as tf

from lockstep.tf.shared.tensors.replica_copies import apart


def test_a_strategy_is_left_and_found_again_also_after_an_error() -> None:
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        with pytest.raises(ValueError, match="inside"), apart():
            assert not tf.distribute.has_strategy()
            raise ValueError("inside")
        assert tf.distribute.has_strategy()


def test_where_no_strategy_is_at_work_nothing_changes() -> None:
    with apart():
        assert not tf.distribute.has_strategy()
