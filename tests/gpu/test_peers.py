"""Tests the bars of `peers.py`. Needs neither PyTorch nor a GPU."""

import unittest

import peers


class TheBars(unittest.TestCase):
    def judged(self, **times):
        """Returns the peer that our 10 ms are compared with, and whether they reach the bar."""
        case = {"case": "adam_f32_8_values", "ms": 10.0}
        names = {
            "stack": "torch stack+sum, fused",
            "chain": "torch add chain, fused",
            "other": "MXNet's sequence, fused",
        }
        rows = []
        for name, ms in times.items():
            peer = names[name]
            missing = {**case, "peer": peer, "error": ""}
            rows.append(peers.row(case, peer, ms / 1e3) if ms else missing)
        found = peers.judge(rows, True)
        self.assertEqual(sum(row.get("bar") is not None for row in rows), int(found is not None))
        return found and (found["peer"], found["ok"])

    def test_compare_with_the_fastest_form(self):
        chain, stack = "torch add chain, fused", "torch stack+sum, fused"
        self.assertEqual(self.judged(stack=23.0, chain=19.0, other=5.0), (chain, False))
        self.assertEqual(self.judged(stack=23.0, chain=24.0, other=5.0), (stack, True))

    def test_need_every_form(self):
        self.assertIsNone(self.judged(stack=23.0, chain=None, other=5.0))
        copy = peers.row({"case": "copy", "ms": 1.0}, "torch copy_", 1e-3)
        self.assertIsNone(peers.judge([copy], True))
        self.assertIsNone(peers.judge([], True))


if __name__ == "__main__":
    unittest.main()
