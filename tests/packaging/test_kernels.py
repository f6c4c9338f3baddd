"""The figures of the kernels: what `scripts/sass.py` reads in listings of nvdisasm, and the limits
and the page of `scripts/kernel_figures.py`. `sass/` has recorded listings.

Runs with any Python, without a GPU:
    python3 tests/packaging/test_kernels.py
"""

import re
import struct
import sys
import unittest
from collections import namedtuple
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import kernel_figures
import sass

Usage = namedtuple("Usage", "registers spilt local seconds")
# The index of the thread, times 16, and the uniform address of a job.
BEGIN = """
    S2R R0, SR_TID.X
    IMAD.SHL.U32 R0, R0, 0x10, RZ
    LDC.64 R2, c[0x0][0x210]
"""
END = """
    EXIT
    BRA SELF
"""


def listing(*lines):
    """Returns a listing with addresses. `name:` before an instruction names a place to jump to."""
    lines = [line.strip() for text in lines for line in text.splitlines() if line.strip()]
    places = {"SELF": 16 * (len(lines) - 1)}
    for n, line in enumerate(lines):
        if match := re.match(r"(\w+): ", line):
            places[match[1]] = 16 * n
            lines[n] = line[match.end() :]
    found = []
    for n, line in enumerate(lines):
        words = [hex(places[word]) if word in places else word for word in line.split(" ")]
        found.append(f"        /*{16 * n:04x}*/                   {' '.join(words)} ;\n")
    return "".join(found)


def figures(*lines):
    text = listing(*lines)
    return sass.split(text, [("kernel", 16 * text.count("\n"))])["kernel"]


def ahead(*lines):
    """Returns the bytes in flight outside and inside of innermost loops."""
    found = figures(BEGIN, *lines, END)
    return found.outside, found.inside


class RecordedListings(unittest.TestCase):
    def read(self, name):
        text = (ROOT / "tests" / "packaging" / "sass" / name).read_text(encoding="utf-8")
        return sass.split(text, [(name, 16 * len(sass.LINE.findall(text)))])[name]

    def test_a_step_has_its_loads_for_one_gradient_and_the_loop_over_four(self):
        # Weight and gradient, then four gradients.
        self.assertEqual(self.read("kv_Sgd_f32.sm_80.sass"), (0, 32, 64))

    def test_a_cast_has_one_load_in_its_loop(self):
        self.assertEqual(self.read("kv_cast_f32_f32.sm_120.sass"), (0, 0, 16))


class BytesInFlight(unittest.TestCase):
    def test_are_those_of_loads_before_the_first_use(self):
        loads = """
            LDG.E.128 R4, desc[UR4][R0.64]
            LDG.E.128 R8, desc[UR4][R0.64+0x1000]
        """
        use = "FADD R12, R7, R8"
        third = "LDG.E.128 R16, desc[UR4][R0.64+0x2000]"
        self.assertEqual(ahead(loads, use, third), (32, 0))
        self.assertEqual(ahead(loads, third, use), (48, 0))
        # A register of a result may not be written before the result arrives.
        self.assertEqual(ahead(loads, "IMAD.MOV.U32 R9, RZ, RZ, RZ", third), (32, 0))

    def test_have_the_width_of_the_loads(self):
        for option, expected in [(".U8", 1), (".S8", 1), (".U16", 2), ("", 4), (".64", 8)]:
            with self.subTest(option):
                self.assertEqual(ahead(f"LDG.E{option} R4, [R0.64]"), (expected, 0))
        self.assertEqual(ahead("LD.E.128.CONSTANT R4, [R0.64]"), (16, 0))

    def test_do_not_have_loads_with_the_same_address_in_all_threads(self):
        job = "LDG.E.64 R4, desc[UR4][R2.64+0x18]"
        load = "LDG.E.128 R8, desc[UR4][R0.64]"
        self.assertEqual(ahead(job, load), (16, 0))
        # A pointer in a job, without and with the index of the thread.
        self.assertEqual(ahead(job, "LDG.E.64 R6, desc[UR4][R4.64]", load), (16, 0))
        add = "IADD3 R4, P0, R4, R0, RZ"
        self.assertEqual(ahead(job, add, "LDG.E.128 R12, [R4.64]", load), (32, 0))

    def test_loads_before_and_after_the_wait_for_an_address_are_not_in_flight_together(self):
        first = "LDG.E.128 R8, desc[UR4][R0.64]"
        job = "LDG.E.64 R4, desc[UR4][R2.64]"
        rest = ["IADD3 R4, P0, R4, R0, RZ", "LDG.E.128 R12, desc[UR4][R4.64]"]
        self.assertEqual(ahead(first, job, *rest), (16, 0))
        # The address was loaded earlier, so the first load is still in flight when it arrives.
        self.assertEqual(ahead(job, first, *rest), (32, 0))

    def test_loads_inside_and_outside_of_a_loop_are_not_added(self):
        found = ahead("""
            LDG.E.128 R4, desc[UR4][R0.64]
            LOOP: LDG.E.128 R8, desc[UR4][R0.64+0x10]
            LDG.E.128 R12, desc[UR4][R0.64+0x20]
            FADD R20, R8, R12
            ISETP.NE.AND P0, PT, R20, RZ, PT
            @P0 BRA LOOP
            LDG.E.128 R16, desc[UR4][R0.64+0x30]
            FADD R4, R4, R16
        """)
        self.assertEqual(found, (16, 32))

    def test_loads_before_and_after_a_loop_are_not_added(self):
        found = ahead("""
            LDG.E.128 R4, desc[UR4][R0.64]
            LOOP: IADD3 R20, R20, 0x1, RZ
            @P0 BRA LOOP
            LDG.E.128 R8, desc[UR4][R0.64+0x10]
        """)
        self.assertEqual(found, (16, 0))

    def test_an_address_may_depend_on_the_thread_in_some_rounds_only(self):
        # In the second round of the loop.
        found = ahead("""
            LOOP: LDG.E.128 R4, desc[UR4][R2.64]
            IMAD.MOV.U32 R2, RZ, RZ, R0
            @P0 BRA LOOP
        """)
        self.assertEqual(found, (0, 16))
        # If the condition is false.
        other = "@P0 IMAD.MOV.U32 R0, RZ, RZ, R2"
        self.assertEqual(ahead(other, "LDG.E.128 R4, desc[UR4][R0.64]"), (16, 0))

    def test_a_loop_with_a_loop_in_it_is_outside(self):
        found = ahead("""
            TILE: LDG.E.64 R4, desc[UR4][R0.64]
            LOOP: LDG.E.128 R8, desc[UR4][R0.64+0x10]
            FADD R20, R20, R8
            @P0 BRA LOOP
            FADD R20, R20, R4
            @P1 BRA TILE
        """)
        self.assertEqual(found, (8, 16))

    def test_code_that_jumps_back_to_an_earlier_place_is_not_always_a_loop(self):
        # The assembler moves rare code to the end.
        found = ahead("""
            @P0 BRA RARE
            BACK: LDG.E.128 R4, desc[UR4][R0.64]
            EXIT
            RARE: FADD R20, R20, R21
            BRA BACK
        """)
        self.assertEqual(found, (16, 0))

    def test_have_conditional_loads_only_if_there_are_no_others_as_wide(self):
        conditional = """
            @!P0 LDG.E.128 R8, desc[UR4][R0.64+0x10]
            @!P1 LDG.E.128 R12, desc[UR4][R0.64+0x20]
            FADD R8, R8, R12
        """
        certain = "LDG.E.128 R4, desc[UR4][R0.64]"
        self.assertEqual(ahead(conditional), (32, 0))
        self.assertEqual(ahead(conditional, certain), (16, 0))
        self.assertEqual(ahead(conditional, "LDG.E R4, desc[UR4][R0.64]"), (32, 0))

    def test_do_not_have_the_path_for_unaligned_memory(self):
        elements = "\n".join(f"LD.E.U16 R{n}, [R0.64+{hex(n)}]" for n in range(4, 24))
        path = f"""
            @P0 BRA VECTOR
            {elements}
            BRA DONE
            VECTOR: LDG.E.64 R4, desc[UR4][R0.64]
            DONE: FADD R4, R4, R5
        """
        self.assertEqual(ahead(path), (8, 0))

    def test_end_at_a_call(self):
        loads = ["LDG.E.128 R4, desc[UR4][R0.64]", "LDG.E.128 R8, desc[UR4][R0.64+0x10]"]
        function = ["EXIT", "ROOT: MUFU.RSQ R30, R31", "RET.REL.NODEC R40 0x0"]
        self.assertEqual(ahead(loads[0], "CALL.REL.NOINC ROOT", loads[1], *function), (16, 0))

    def test_a_function_may_return_an_address(self):
        found = ahead(
            "CALL.REL.NOINC DIVIDE",
            "LDG.E.128 R4, desc[UR4][R30.64]",
            "EXIT",
            "DIVIDE: IMAD R30, R31, R32, RZ",
            "RET.REL.NODEC R40 0x0",
        )
        self.assertEqual(found, (16, 0))

    def test_a_call_of_code_that_does_not_return_is_a_jump(self):
        loads = ["LDG.E.128 R4, desc[UR4][R2.64]", "LDG.E.64 R12, desc[UR4][R0.64]", "DONE: EXIT"]
        function = ["IMAD R2, R3, R3, RZ", "RET.REL.NODEC R40 0x0"]
        self.assertEqual(ahead("@P0 CALL.REL.NOINC DONE", *loads, *function), (8, 0))
        # The first load is not executed after this jump.
        jump = ["IMAD.MOV.U32 R2, RZ, RZ, R0", "CALL.REL.NOINC DONE"]
        loads[0] = f"OTHER: {loads[0]}"
        self.assertEqual(ahead("@P1 BRA OTHER", *jump, *loads), (8, 0))

    def test_the_targets_of_a_table_of_jumps_are_read(self):
        cases = ["LDG.E.128 R4, desc[UR4][R0.64]", "EXIT", "LDG.E.64 R8, desc[UR4][R0.64]"]
        self.assertEqual(ahead("BRX R10 -0x80", *cases), (16, 0))


class Parsing(unittest.TestCase):
    def assert_instruction(self, text, reads, writes):
        found = sass.parse(text)
        self.assertEqual(found.reads, sass.registers(reads), text)
        self.assertEqual(found.writes, sass.registers(writes), text)

    def test_results_and_operands(self):
        for text, reads, writes in [
            ("IADD3 R8, P0, P1, R4, R5.reuse, RZ", "R4 R5", "R8 P0 P1"),
            ("IADD3.X R9, R7, R11, RZ, P0, !PT", "R7 R11 P0", "R9"),
            ("ISETP.GE.U32.AND.EX P2, PT, R5, UR4, !P2, P3", "R5 P2 P3", "P2"),
            ("SEL R2, RZ, 0x1, !P2", "P2", "R2"),
            ("@!P1 IMAD.MOV R6, RZ, RZ, R4", "P1 R4", "R6"),
            ("@!P1 LDG.E R6, desc[UR8][R4.64+0x8]", "R4", "R6"),
            ("LOP3.LUT P0, RZ, R4, 0x1, RZ, 0xc0, !PT", "R4", "P0"),
            ("IMNMX.U64 PT, PT, R4, R6, 0x4, PT, !PT", "R6", "R4 R5"),
            ("FCHK P0, R3, R4", "R3 R4", "P0"),
            ("STG.E.128 desc[UR4][R8.64], R4", "R8 R4", ""),
            ("FADD R4, -|R5|, c[0x0][R6+0x10]", "R5 R6", "R4"),
            ("HADD2.F32 R4, -RZ, R5.H0_H0", "R5", "R4"),
            ("BAR.SYNC 0x0", "", ""),
        ]:
            self.assert_instruction(text, reads, writes)

    def test_results_of_several_registers(self):
        for text, writes in [
            ("LDG.E.128 R4, [R2.64]", "R4 R5 R6 R7"),
            ("LDC.64 R4, c[0x0][0x210]", "R4 R5"),
            ("IMAD.WIDE.U32 R4, R2, 0x8, R8", "R4 R5"),
            ("DADD R4, R6, R8", "R4 R5"),
            ("F2F.F64.F32 R4, R6", "R4 R5"),
            ("F2F.F32.F64 R4, R6", "R4"),
            ("I2F.F64.S64 R4, R6", "R4 R5"),
            ("I2F.S64 R4, R6", "R4"),
            ("F2I.S64.TRUNC R4, R6", "R4 R5"),
            ("SHF.L.U64.HI R4, R6, 0x2, R7", "R4"),
            ("CS2R R4, SRZ", "R4 R5"),
        ]:
            self.assertEqual(sass.parse(text).writes, sass.registers(writes), text)

    def test_jumps_and_conditions(self):
        for text, is_conditional, target in [
            ("BRA 0x1f0", False, 0x1F0),
            ("@!P0 BRA 0x1f0", True, 0x1F0),
            ("BRA.U !UP0, 0x1f0", True, 0x1F0),
            ("@P0 EXIT", True, None),
            ("CALL.REL.NOINC 0x1f0", False, 0x1F0),
            ("RET.REL.NODEC R4 0x0", False, None),
        ]:
            found = sass.parse(text)
            self.assertEqual((found.is_conditional, found.target), (is_conditional, target), text)

    def test_accesses_of_local_memory_are_counted(self):
        found = figures(BEGIN, "STL.64 [R1], R2", "STL [R1+0x8], RZ", "LDL R4, [R1]", END)
        self.assertEqual(found.local_accesses, 3)

    def test_a_listing_is_split_into_kernels(self):
        one, other = "LDG.E.64 R4, [R0.64]", "LDG.E.128 R4, [R0.64]"
        text = listing("S2R R0, SR_TID.X", one, "EXIT", "S2R R0, SR_TID.X", other, "EXIT")
        found = sass.split(text, [("first", 48), ("second", 48)])
        self.assertEqual([found[name].outside for name in ["first", "second"]], [8, 16])
        with self.assertRaisesRegex(ValueError, "second: found a listing of 48 bytes, expected 64"):
            sass.split(text, [("first", 48), ("second", 64)])

    def test_sections_of_code_are_found_in_a_module(self):
        names = b"\0.text.kv_one\0.text.kv_two\0.data\0"
        sections = [(b"\0.data", b"d"), (b"\0.text.kv_two", b"22"), (b"\0.text.kv_one", b"1")]
        content = names + b"".join(code for _, code in sections)
        header = struct.pack("<40xQ10xHHH", 64 + len(content), 64, 1 + len(sections), 0)
        table, offset = struct.pack("<II4Q24x", 0, 3, 0, 0, 64, len(names)), 64 + len(names)
        for name, code in sections:
            place = names.index(name + b"\0") + 1
            table += struct.pack("<II4Q24x", place, 1, 0, 0, offset, len(code))
            offset += len(code)
        found = list(sass.sections(header + content + table))
        self.assertEqual(found, [("kv_two", b"22"), ("kv_one", b"1")])


def entry(card="sm_90", registers=64, spilt=0, local=0, seconds=0.1, found=(0, 64, 64)):
    usage = Usage(registers, spilt, local, seconds)
    return kernel_figures.Entry(card, usage, found and sass.Figures(*found))


class Limits(unittest.TestCase):
    def test_blocks_that_run_side_by_side(self):
        for registers, expected in [(16, 8), (32, 8), (33, 6), (40, 6), (48, 5), (64, 4), (65, 3),
                                    (80, 3), (81, 2), (128, 2), (129, 1), (255, 1)]:
            found = kernel_figures.resident_blocks("sm_90", registers)
            self.assertEqual(found, expected, registers)
        self.assertEqual(kernel_figures.resident_blocks("sm_120", 16), 6)
        self.assertEqual(kernel_figures.resident_blocks("sm_120", 64), 4)

    def test_occupancy_and_bytes_in_flight(self):
        found = entry(registers=64, found=(0, 32, 64))
        self.assertEqual((found.occupancy, found.kib_outside, found.kib), (50, 32, 64))
        found = entry("sm_120", registers=64, found=(0, 64, 16))
        self.assertEqual((found.occupancy, found.kib_outside, found.kib), (67, 64, 64))

    def assert_fault(self, expected, kernel="kv_Adam_f32", **figures):
        card = figures.get("card", "sm_90")
        expected = [f"{kernel} for {card}: found {text}" for text in expected]
        self.assertEqual(list(entry(**figures).faults(kernel)), expected)

    def test_a_message_names_the_kernel_the_card_the_figure_and_the_limit(self):
        self.assert_fault([])
        self.assert_fault(["8 bytes of spilt registers, expected 0"], spilt=8)
        self.assert_fault(["16 bytes of local memory, expected 0"], local=16)
        self.assert_fault(["2 loads and stores of local memory, expected 0"], found=(2, 64, 64))
        self.assert_fault(["11.0 s to compile, expected at most 10"], seconds=11)
        self.assert_fault(
            ["3 blocks side by side on a multiprocessor, with 65 registers for a thread, expected"
             " at least 4"], registers=65)
        self.assert_fault(
            ["32 KiB in flight, expected at least 48",
             "32 KiB in flight outside of loops, expected at least 40"], found=(0, 32, 32))

    def test_the_bytes_outside_of_loops_have_their_own_limit(self):
        text = "32 KiB in flight outside of loops, expected at least 40"
        self.assert_fault([text], found=(0, 32, 64))

    def test_a_card_with_fewer_threads_has_lower_limits(self):
        self.assert_fault([], card="sm_120", registers=80)
        self.assert_fault(
            ["2 blocks side by side on a multiprocessor, with 81 registers for a thread, expected"
             " at least 3", "32 KiB in flight, expected at least 36"],
            card="sm_120", registers=81)

    def test_a_card_without_code_has_limits_for_registers_only(self):
        self.assert_fault([], card="sm_70", found=None)
        self.assert_fault(["8 bytes of spilt registers, expected 0"], card="sm_70", found=None,
                          spilt=8)

    def test_some_kernels_may_use_local_memory_but_not_spill(self):
        self.assert_fault([], "kv_add_in_pairs", local=16, found=(2, 0, 0))
        self.assert_fault(["8 bytes of spilt registers, expected 0"], "kv_add_in_pairs", spilt=8)

    def test_a_kernel_without_limits_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "kv_new_f32: FAMILIES in scripts/kernel_figures"):
            list(entry().faults("kv_new_f32"))

    def test_every_kernel_has_limits_and_is_on_the_page(self):
        text = (ROOT / "kvstore-cuda" / "compiled" / "kernels.rs").read_text(encoding="utf-8")
        kernels = re.findall(r'"(kv_\w+)"', text)
        families = {kernel_figures.family_of(kernel).name for kernel in kernels}
        self.assertEqual(families, {family.name for family in kernel_figures.FAMILIES})
        page = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
        self.assertEqual(re.findall(r"^\| `(\w+)` \|", page, re.M), kernels)


class Page(unittest.TestCase):
    def page(self, **options):
        cards = ["sm_90", "sm_120"]
        kernels = {
            "kv_Sgd_f32": [entry("sm_90", 40, found=(0, 32, 64)), entry("sm_120", 44)],
            "kv_Adam_f32": [entry("sm_90", 64, found=(0, 48, 48)),
                            entry("sm_120", 80, found=(0, 48, 48))],
            "kv_Sgld_f16": [entry(card, 72, found=(0, 24, 32)) for card in cards],
            "kv_add_in_pairs": [entry(card, local=8, found=(2, 0, 0)) for card in cards],
        }
        return kernel_figures.page(kernels, cards, **options)

    def test_has_a_line_for_each_kernel(self):
        for line in [
            "| `kv_Sgd_f32` | 40 44 | 6 5 | 75 83 | 96 80 | 48 80 |\n",
            "| `kv_Sgld_f16` | 72 | 3 | 38 50 | 24 | 18 |\n",
        ]:
            self.assertIn(line, self.page())

    def test_has_the_least_figures_and_the_limits_of_each_family(self):
        page = self.page()
        self.assertIn("| Steps, f32 | 2 | 4 3 (4) | 48 36 (48) | 48 36 (40) |\n", page)
        self.assertNotIn("Fills |", page)

    def test_lists_kernels_below_the_goal_and_with_local_memory(self):
        page = self.page()
        self.assertIn("Below the goal: `kv_Sgld_f16` (24).\n", page)
        self.assertIn("With local memory (bytes of a thread): `kv_add_in_pairs` (8).\n", page)

    def test_has_compile_times_on_request(self):
        self.assertNotIn("compile", self.page().split("## Kernels")[1])
        line = "| `kv_Sgld_f16` | 72 | 3 | 38 50 | 24 | 18 | 100 |\n"
        self.assertIn(line, self.page(has_seconds=True))


if __name__ == "__main__":
    unittest.main()
