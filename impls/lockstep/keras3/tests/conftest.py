"""Keras on TensorFlow, chosen before anything is imported."""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import pytest

pytest.importorskip("keras", reason="needs Keras")
pytest.importorskip("tensorflow", reason="needs TensorFlow")
