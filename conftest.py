"""What every run of the tests listens to."""

pytest_plugins = [
    "harness.nets.sentences",
    "harness.long_tests",
    "harness.order_of_tests",
    "harness.tests.shared_processes",
]
