"""Values that make no sense are a sentence, not a silent step."""

import numpy as np
import pytest
import tensorflow as tf

from lockstep import tf as lockstep
from lockstep.errors import LockstepError
from lockstep.tests.bad_values import bad_values


def tensor(*values, dtype=np.float32):
    return tf.constant(np.array(values, dtype))


def variable():
    return tf.Variable([1.0, 1.0])


CALLS = bad_values(lockstep, tensor, variable)


@pytest.mark.parametrize(("call", "words"), CALLS.values(), ids=CALLS)
def test_a_sentence_says_what_is_wrong(call, words):
    with pytest.raises(LockstepError, match=words):
        call()
