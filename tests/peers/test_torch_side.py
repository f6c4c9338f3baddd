"""Tests that all forms of PyTorch compute the same. `run` runs this before it measures."""

import unittest

import numpy as np

import torch_side
from workloads import ADAM, SGD, Workload, values

SHAPES = [(3, 5), (7,), (70_000,)]
NUM_TURNS = 3


def expected(workload):
    """Computes the values after `NUM_TURNS` turns with the optimizers' formulas, in `f64`."""
    found = []
    for index, shape in enumerate(workload.shapes):
        gradients = [values(1000 * (1 + n) + index, shape) for n in range(workload.pushed)]
        total = np.sum(gradients, axis=0, dtype=np.float64)
        weight = values(1 + index, shape).astype(np.float64)
        mean, variance = np.zeros(shape), np.zeros(shape)
        for turn in range(1, 1 + NUM_TURNS):
            if workload.optimizer is None:
                weight = total
                continue
            name, options = workload.optimizer
            gradient = total + options["wd"] * weight
            if name == "sgd":
                mean = options["momentum"] * mean + gradient
                weight = weight - options["learning_rate"] * mean
            else:
                mean = 0.9 * mean + 0.1 * gradient
                variance = 0.999 * variance + 0.001 * gradient**2
                root = np.sqrt(variance / (1 - 0.999**turn)) + 1e-8
                weight = weight - options["learning_rate"] * mean / (1 - 0.9**turn) / root
        found.append(weight)
    return found


@unittest.skipUnless(torch_side.is_installed(), "PyTorch is not installed")
class Forms(unittest.TestCase):
    def check(self, **options):
        """Runs all forms of a workload, compares each with the formulas, and returns them."""
        workload = Workload("test", None, SHAPES, has_torch=True, **options)
        forms, missing = torch_side.forms(workload)
        inputs = torch_side.Inputs(workload)
        for form in forms:
            with self.subTest(str(form)):
                self.compare(workload, torch_side.RunningTorch(workload, inputs, form))
        return forms, missing

    def compare(self, workload, running):
        for _ in range(NUM_TURNS):
            running.turn()
        outputs = running.outputs()
        wanted = [value for value in expected(workload) for _ in range(workload.pulled or 1)]
        self.assertEqual(len(outputs), len(wanted))
        for output, value in zip(outputs, wanted):
            np.testing.assert_allclose(output, value, rtol=1e-5, atol=1e-6)

    def test_every_form_of_a_sum(self):
        forms, missing = self.check(pushed=4)
        self.assertEqual([form.sum for form in forms], list(torch_side.SUMS))
        self.assertEqual(missing, [])
        self.check(pushed=8)

    def test_every_form_of_a_step_of_sgd(self):
        self.check(pushed=4, optimizer=SGD)

    def test_every_form_of_a_step_of_adam(self):
        self.check(pushed=4, optimizer=ADAM)

    def test_every_form_of_a_step_with_a_pull(self):
        forms, missing = self.check(pushed=4, pulled=4, optimizer=SGD)
        self.check_parts(torch_side.PULLS, {form.pull for form in forms}, missing)

    def test_every_kind_of_step_is_tried_or_reported_as_missing(self):
        for optimizer in (SGD, ADAM):
            forms, missing = self.check(pushed=4, optimizer=optimizer)
            self.check_parts(torch_side.STEPS, {form.step for form in forms}, missing)

    def test_compiled_passes(self):
        error = torch_side.compile_error()
        if error:
            self.skipTest(f"torch.compile: {error}")
        for options in (
            {},
            {"optimizer": SGD},
            {"optimizer": ADAM},
            {"optimizer": SGD, "pulled": 4},
        ):
            with self.subTest(str(options)):
                workload = Workload("test", None, SHAPES, pushed=4, has_torch=True, **options)
                inputs = torch_side.Inputs(workload)
                self.compare(workload, torch_side.RunningCompiled(workload, inputs))

    def check_parts(self, names, tried, missing):
        """Checks that every part is either tried or reported as missing."""
        for name in names:
            is_reported = any(line.startswith(f"{name} ") for line in missing)
            self.assertNotEqual(name in tried, is_reported, name)


if __name__ == "__main__":
    unittest.main()
