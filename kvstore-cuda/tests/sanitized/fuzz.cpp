// Runs random batches through every kernel under sanitizers: `fuzz SEED ROUNDS`. Every range is its
// own allocation of exactly the required length. Other tests compare the results with the host.
#include "argmax.cu"
#include "broadcast.cu"
#include "cast.cu"
#include "elementwise.cu"
#include "measure.cu"
#include "norm.cu"
#include "plan_rows.cu"
#include "quantize.cu"
#include "random.cu"
#include "reduce.cu"
#include "rows.cu"
#include "strided.cu"
#include "sum.cu"
#include "transpose.cu"
#include "update.cu"
#include "update_rows.cu"
#include "update_rowwise.cu"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

static std::mt19937_64 random_words;

static u64 below(u64 limit) { return random_words() % limit; }

// Allocations that live as long as a round.
struct Memory {
    std::vector<u8 *> blocks;

    ~Memory() {
        for (u8 *block : blocks) free(block);
    }

    // Returns a range of random bytes that starts `beyond` bytes after an aligned address.
    u64 range(u64 num_bytes, u64 beyond) {
        u8 *block = (u8 *)malloc(num_bytes + beyond);
        blocks.push_back(block);
        for (u64 index = 0; index < num_bytes; index++) block[beyond + index] = (u8)random_words();
        return (u64)(block + beyond);
    }

    // Returns a copy of the words in an allocation of exactly their length.
    template <class Word> const Word *list(const std::vector<Word> &words) {
        u64 num_bytes = sizeof(Word) * words.size(), address = range(num_bytes, 0);
        if (!words.empty()) memcpy((void *)address, words.data(), num_bytes);
        return (const Word *)address;
    }
};

static u64 random_len() {
    switch (below(3)) {
    case 0: return 1 + below(40);
    case 1: return 512 * (1 + below(10)) - 3 + below(7);
    default: return 1 + below(20000);
    }
}

typedef void (*Kernel)(const void *, u32, u32);

static u64 num_batches;

// Runs a kernel with a random number of blocks and a random order of threads.
static void run(Kernel kernel, const void *args) {
    u32 num_blocks = 1 + (u32)below(5);
    kernel(args, num_blocks, (u32)below(1000));
    num_batches++;
}

// The jobs of a launch, and the list of addresses or row indices that they share.
template <class Job> struct Batch {
    Memory memory;
    std::vector<Job> jobs;
    std::vector<u64> list;
    u64 num_tiles = 0;

    // Runs kernels on the jobs, one after the other.
    void run(const std::vector<Kernel> &kernels) {
        BatchArgs<Job> args = {jobs.data(), memory.list(list), num_tiles, (u32)jobs.size(), 0};
        for (Kernel kernel : kernels) ::run(kernel, &args);
    }
};

// Ranges of one length, all aligned or all the same number of elements beyond an aligned address.
struct Ranges {
    Memory &memory;
    u64 len;
    bool is_aligned = below(2) != 0;
    u64 beyond = is_aligned ? 0 : 1 + below(3);

    // Returns a range of elements of a size.
    u64 of(u64 size) const { return memory.range(len * size, beyond * size % 16); }
};

// Runs sums, which read the other ranges, or copies, which write them.
// With 0 addends, the number is random.
static void fuzz_fan(Kernel kernel, u64 size, u32 fixed_addends = 0) {
    Batch<FanJob> batch;
    std::vector<u64> &addends = batch.list;
    for (u64 count = 1 + below(4); count > 0; count--) {
        u64 len = random_len(), place = below(16) * size % 16;
        bool is_aligned = below(4) != 0;
        u32 random_addends = 1 + (u32)below(18), first = (u32)addends.size();
        u32 num_addends = fixed_addends ? fixed_addends : random_addends;
        for (u32 n = 0; n < num_addends; n++)
            addends.push_back(
                batch.memory.range(len * size, is_aligned ? place : below(16) * size % 16));
        u64 dst = below(2) ? addends[first] : batch.memory.range(len * size, place);
        u64 head = (16 - dst % 16) % 16 / size;
        for (u32 n = 0; n < num_addends; n++)
            is_aligned = is_aligned && addends[first + n] % 16 == dst % 16;
        is_aligned = is_aligned && head < len;
        u64 after_head = is_aligned ? len - head : len, tile = KV_TILE_BYTES / size;
        batch.jobs.push_back(
            {batch.num_tiles, dst, len, first, num_addends, is_aligned ? (u32)head : KV_NEVER, 0});
        batch.num_tiles += (after_head + tile - 1) / tile;
    }
    batch.run({kernel});
}

// Returns a step that reads these ranges; the caller decides where it writes. The states include a
// master copy.
template <class T>
static UpdateJob random_step(Batch<UpdateJob> &batch, const Ranges &ranges, u32 num_states) {
    UpdateJob job = {};
    job.first_tile = batch.num_tiles;
    job.len = ranges.len;
    job.weight_from = ranges.of(sizeof(T));
    for (u32 n = 0; n < num_states; n++)
        job.states_from[n] = ranges.of(sizeof(typename Arithmetic<T>::Number));
    for (double &scalar : job.scalars) scalar = (double)below(1000) / 500;
    job.first_addend = (u32)batch.list.size();
    job.num_addends = 1 + (u32)below(12);
    for (u32 n = 0; n < job.num_addends; n++) batch.list.push_back(ranges.of(sizeof(T)));
    job.is_aligned = ranges.is_aligned;
    return job;
}

template <class T> static void fuzz_update(Kernel kernel, u32 num_states) {
    const u64 tile = Lanes<T>::COUNT * KV_THREADS;
    Batch<UpdateJob> batch;
    num_states += IsHalf<T>::VALUE ? 1 : 0;
    for (u64 count = 1 + below(4); count > 0; count--) {
        Ranges ranges = {batch.memory, random_len()};
        UpdateJob job = random_step<T>(batch, ranges, num_states);
        bool is_in_place = below(2) != 0;
        auto to = [&](u64 from, u64 size) { return is_in_place ? from : ranges.of(size); };
        job.weight_to = to(job.weight_from, sizeof(T));
        for (u32 n = 0; n < num_states; n++)
            job.states_to[n] = to(job.states_from[n], sizeof(typename Arithmetic<T>::Number));
        batch.num_tiles += (job.len + tile - 1) / tile;
        batch.jobs.push_back(job);
    }
    batch.run({kernel});
}

// Runs sums of squares of a formula's norms.
template <class T> static void fuzz_measure(Kernel kernel, u32 num_states) {
    Batch<UpdateJob> batch;
    num_states += IsHalf<T>::VALUE ? 1 : 0;
    for (u64 count = 1 + below(4); count > 0; count--) {
        Ranges ranges = {batch.memory, random_len() * (1 + below(3))};
        UpdateJob job = random_step<T>(batch, ranges, num_states);
        u64 num_blocks = (job.len + KV_NORM_BLOCK - 1) / KV_NORM_BLOCK;
        job.weight_to = batch.memory.range(num_blocks * 2 * KV_NORM_THREADS * sizeof(double), 0);
        batch.num_tiles += (job.len + KV_NORM_TILE - 1) / KV_NORM_TILE;
        batch.jobs.push_back(job);
    }
    batch.run({kernel});
    const UpdateJob &job = batch.jobs[0];
    u64 num_sums = 2 * ((job.len + KV_NORM_BLOCK - 1) / KV_NORM_BLOCK);
    PairArgs pairs = {job.weight_to, batch.memory.range(num_sums * sizeof(double), 0), num_sums};
    run(kv_add_in_pairs, &pairs);
}

template <class T, class Code> static void fuzz_codes(Kernel quantize, Kernel dequantize) {
    const u64 size = sizeof(T), number = sizeof(typename Arithmetic<T>::Number);
    const u64 tile = KV_CODE_VECTORS * Lanes<T>::COUNT * KV_THREADS;
    Batch<QuantizeJob> values;
    Batch<DequantizeJob> sums;
    std::vector<u64> &codes = sums.list;
    for (u64 count = 1 + below(4); count > 0; count--) {
        Ranges ranges = {values.memory, random_len()};
        u64 len = ranges.len, num_bytes = num_code_bytes<Code>(len);
        u64 residual = ranges.of(number), made = values.memory.range(num_bytes, below(4) * 4);
        values.jobs.push_back({values.num_tiles, len, ranges.of(size), residual,
                               below(2) ? residual : ranges.of(number), made, 0.5,
                               ranges.is_aligned, 0});
        sums.jobs.push_back({sums.num_tiles, len, ranges.of(size), 0.5, (u32)codes.size(),
                             1 + (u32)below(9), ranges.is_aligned, 0});
        codes.push_back(made);
        for (u32 n = 1; n < sums.jobs.back().num_addends; n++)
            codes.push_back(sums.memory.range(num_bytes, below(16)));
        values.num_tiles += (num_bytes + KV_THREADS - 1) / KV_THREADS;
        sums.num_tiles += (len + tile - 1) / tile;
    }
    values.run({quantize});
    sums.run({dequantize});
}

static void fuzz_cast(Kernel kernel, u64 from_size, u64 to_size) {
    Memory memory;
    Ranges ranges = {memory, random_len()};
    CastArgs args = {ranges.of(from_size), ranges.of(to_size), ranges.len, ranges.is_aligned, 0};
    run(kernel, &args);
}

// Runs copies of strided elements, with axes in any order, some of them backwards. The allocation
// ends with the last element.
static void fuzz_strided(Kernel gather, Kernel scatter, u64 size) {
    Memory memory;
    StridedArgs args = {};
    args.num_axes = (u32)below(KV_AXES + 1);
    args.len = 1;
    u64 reach = size, end = 0, first = 0;
    std::vector<u32> axes;
    for (u32 axis = 0; axis < args.num_axes; axis++) axes.push_back(axis);
    std::shuffle(axes.begin(), axes.end(), random_words);
    for (u32 axis : axes) {
        u64 length = 1 + below(4), stride = reach * (1 + below(2));
        args.lengths[axis] = length;
        args.strides[axis] = below(3) ? stride : -stride;
        if (args.strides[axis] != stride) first += (length - 1) * stride;
        args.len *= length;
        end += (length - 1) * stride;
        reach = stride * length;
    }
    args.strided = memory.range(end + size, 0) + first;
    args.packed = memory.range(args.len * size, 0);
    run(gather, &args);
    run(scatter, &args);
}

// Returns a division into tiles for a random number of rows of a random length.
static RowCut random_cut(u32 unit, u64 &num_tiles) {
    u64 num_units = below(5) ? 1 + below(80) : 1 + below(3000),
        num_rows = 1 + below(4000 / num_units + 3);
    u64 some = KV_ROW_TILE / num_units, rows = some ? some : 1;
    u64 tiles = (num_units + KV_ROW_TILE - 1) / KV_ROW_TILE, part = some ? num_units : KV_ROW_TILE;
    num_tiles += (num_rows + rows - 1) / rows * tiles;
    u64 reciprocal = ((1 << KV_ROW_SHIFT) + part - 1) / part;
    return {num_rows, num_units, (u32)rows, (u32)tiles, (u32)reciprocal, unit};
}

// Returns ascending row indices, followed by a number of rows that is larger than all of them.
static std::vector<u64> random_indices(u64 count) {
    std::vector<u64> indices;
    u64 next = 0;
    for (; count > 0; count--) indices.push_back((next += 1 + below(3)) - 1);
    indices.push_back(next + below(2));
    return indices;
}

static RowAddends random_addends(Memory &memory, u64 num_rows, u64 row_bytes, u64 beyond) {
    bool has_starts = below(4) != 0;
    u64 num_addends = 1 + below(3), addends[3], rows[3];
    for (u64 n = 0; n < num_addends; n++)
        addends[n] = memory.range((rows[n] = 1 + below(5)) * row_bytes, beyond);
    std::vector<u64> sources;
    std::vector<u32> starts;
    for (u64 row = 0; row < num_rows; row++) {
        starts.push_back((u32)sources.size());
        for (u64 count = has_starts ? below(6) : 1; count > 0; count--) {
            u64 addend = below(num_addends);
            sources.push_back(addends[addend] + below(rows[addend]) * row_bytes);
        }
    }
    starts.push_back((u32)sources.size());
    RowAddends made = {(u64)memory.list(sources), 0, (u32)below(5), 0};
    if (has_starts) made.starts = (u64)memory.list(starts);
    return made;
}

// Returns the number of elements in a unit, and sets the offset of the ranges from an aligned
// address.
static u32 random_unit(u64 size, u64 &beyond) {
    beyond = below(2) ? 0 : 1 + below(3);
    return beyond ? 1 : size == 8 ? 2 : 4;
}

static void fuzz_sum_rows(Kernel kernel, u64 size) {
    Batch<RowSumJob> batch;
    for (u64 count = 1 + below(4); count > 0; count--) {
        u64 first_tile = batch.num_tiles, beyond;
        u32 unit = random_unit(size, beyond);
        RowCut cut = random_cut(unit, batch.num_tiles);
        u64 row_bytes = cut.num_units * unit * size, place = beyond * size % 16;
        RowAddends addends = random_addends(batch.memory, cut.num_rows, row_bytes, place);
        batch.jobs.push_back(
            {first_tile, cut, addends, batch.memory.range(cut.num_rows * row_bytes, place)});
    }
    batch.run({kernel});
}

static void fuzz_scatter_rows() {
    Batch<RowScatterJob> batch;
    for (u64 count = 1 + below(4); count > 0; count--) {
        u64 first_tile = batch.num_tiles;
        u32 unit = 1u << below(5);
        RowCut cut = random_cut(unit, batch.num_tiles);
        u64 row_bytes = cut.num_units * unit;
        std::vector<u64> indices = random_indices(below(cut.num_rows + 1));
        while (indices.size() > 1 && indices[indices.size() - 2] >= cut.num_rows)
            indices.pop_back();
        u64 number = indices.size() - 1,
            rows = batch.memory.range(number * row_bytes, below(3) * unit);
        u64 dst = batch.memory.range(cut.num_rows * row_bytes, below(3) * unit);
        indices.pop_back();
        u64 ids = (u64)batch.memory.list(indices);
        batch.jobs.push_back({first_tile, cut, rows, dst, ids, (u32)number, 0});
    }
    batch.run({kv_scatter_rows});
}

// Runs updates of rows, with states for elements or for rows.
template <class T>
static void fuzz_update_rows(const std::vector<Kernel> &kernels, u32 num_states, bool is_rowwise) {
    const u64 size = sizeof(T), number = sizeof(typename Arithmetic<T>::Number);
    Batch<RowUpdateJob> batch;
    Memory &memory = batch.memory;
    for (u64 count = 1 + below(4); count > 0; count--) {
        RowUpdateJob job = {};
        job.first_tile = batch.num_tiles;
        u64 beyond;
        u32 unit = random_unit(size, beyond);
        job.cut = random_cut(unit, batch.num_tiles);
        u64 row_len = job.cut.num_units * unit;
        job.addends =
            random_addends(memory, job.cut.num_rows, row_len * size, beyond * size % 16);
        std::vector<u64> indices = random_indices(job.cut.num_rows);
        auto range = [&](u64 of) {
            return memory.range(indices.back() * row_len * of, beyond * of % 16);
        };
        job.weight = range(size);
        u32 num_masters = IsHalf<T>::VALUE ? 1 : 0;
        for (u32 n = 0; n < num_states + num_masters; n++)
            job.states[n] = is_rowwise && n >= num_masters
                                ? memory.range(indices.back() * number, 0)
                                : range(number);
        for (double &scalar : job.scalars) scalar = (double)below(1000) / 500;
        indices.pop_back();
        job.ids = (u64)memory.list(indices);
        batch.jobs.push_back(job);
    }
    batch.run(kernels);
}

// Plans some unions in one merged order. Checks that every row gets its start.
static void fuzz_plan_rows() {
    Batch<RowList> batch;
    Memory &memory = batch.memory;
    std::vector<std::vector<std::vector<u64>>> unions(1 + below(3));
    u64 num_sources = 0, num_rows = 0;
    for (auto &lists : unions) {
        std::set<u64> rows;
        lists.resize(1 + below(5));
        for (auto &list : lists) {
            list = random_indices(below(2) ? below(9) : below(3000));
            list.pop_back();
            rows.insert(list.begin(), list.end());
            num_sources += list.size();
        }
        num_rows += rows.size();
    }
    u64 merged = memory.range(8 * num_sources, 0), sources = memory.range(8 * num_sources, 0);
    u64 place = 0;
    for (auto &lists : unions) {
        u32 first = (u32)batch.jobs.size(), end = first + (u32)lists.size();
        u64 begin = place;
        for (auto &list : lists) {
            u64 ids = (u64)memory.list(list), rows = random_words(), row_bytes = below(99);
            batch.jobs.push_back({batch.num_tiles, ids, rows, row_bytes, merged + 8 * begin,
                                  sources + 8 * begin, (u32)list.size(), first, end, 0});
            batch.num_tiles += (list.size() + KV_THREADS - 1) / KV_THREADS;
            place += list.size();
        }
    }
    if (num_sources == 0) return;
    batch.run({kv_merge_rows});
    std::vector<u64> lens = {(num_sources + KV_PLACES - 1) / KV_PLACES}, counts;
    while (lens.back() > KV_COUNTS) lens.push_back((lens.back() + KV_COUNTS - 1) / KV_COUNTS);
    for (u64 len : lens) counts.push_back(memory.range(4 * len, 0));
    ChunkArgs args = {merged, counts[0], 0, 0, num_sources, 0, 0};
    run(kv_count_rows, &args);
    for (size_t n = 1; n < lens.size(); n++) {
        args = {counts[n - 1], counts[n], 0, 0, lens[n - 1], 0, 0};
        run(kv_add_counts, &args);
    }
    for (size_t n = lens.size() - 1; n > 0; n--) {
        args = {0, counts[n - 1], counts[n], 0, lens[n - 1], n + 1 == lens.size(), 0};
        run(kv_scan_counts, &args);
    }
    u64 starts = memory.range(4 * (num_rows + 1), 0), ids = memory.range(8 * num_rows, 0);
    args = {merged, starts, counts[0], ids, num_sources, lens.size() == 1, 0};
    run(kv_list_rows, &args);
    const u32 *found = (const u32 *)starts;
    if (!std::is_sorted(found, found + num_rows + 1) || found[num_rows] != num_sources) abort();
}

static void fuzz_locate_rows() {
    Batch<LocateJob> batch;
    for (u64 count = 1 + below(4); count > 0; count--) {
        std::vector<u64> indices = random_indices(below(3000));
        indices.pop_back();
        u64 num_rows = indices.size(), ids = below(2) ? (u64)batch.memory.list(indices) : 0;
        batch.jobs.push_back({batch.num_tiles, ids, random_words(), below(99),
                              batch.memory.range(8 * num_rows, 0), num_rows});
        batch.num_tiles += (num_rows + KV_THREADS - 1) / KV_THREADS;
    }
    batch.run({kv_locate_rows});
}

// Runs every operation by its code, and invalid codes. Divisors may be 0.
static void fuzz_operations(Kernel binary, Kernel unary, Kernel clip, u64 size) {
    for (u32 op = 0; op < 18; op++) {
        Memory memory;
        Ranges ranges = {memory, random_len()};
        u64 len = ranges.len, from = ranges.of(size), to = below(2) ? from : ranges.of(size);
        u32 is_aligned = ranges.is_aligned, is_scalar = (u32)below(2);
        u64 rhs = is_scalar ? below(3) : ranges.of(size);
        BinaryArgs two = {from, to, rhs, len, op, is_scalar, (u32)below(2), is_aligned};
        run(binary, &two);
        UnaryArgs one = {from, to, len, op, is_aligned};
        run(unary, &one);
        ClipArgs limits = {from, to, len, random_words(), random_words(), is_aligned, 0};
        run(clip, &limits);
    }
}

static void fuzz_number(Kernel fill, Kernel any_zero, u64 size) {
    Memory memory;
    u64 len = random_len();
    u32 is_aligned = (u32)below(2);
    u64 range = memory.range(len * size, is_aligned ? 0 : size);
    FillArgs number = {range, len, random_words(), is_aligned, 0};
    run(fill, &number);
    AnyZeroArgs zero = {range, len, memory.range(4, 4), is_aligned, 0};
    if (any_zero) run(any_zero, &zero);
}

static void fuzz_transpose(Kernel kernel, u64 size) {
    Memory memory;
    u64 rows = 1 + below(200), columns = 1 + below(200);
    u32 is_aligned = (u32)below(2);
    if (is_aligned) rows += (0 - rows) % 4, columns += (0 - columns) % 4;
    Ranges ranges = {memory, rows * columns, is_aligned != 0, is_aligned ? 0 : below(4)};
    TransposeArgs args = {ranges.of(size), ranges.of(size), rows, columns, is_aligned, 0};
    run(kernel, &args);
}

// Runs every reduction by its code.
static void fuzz_reduce(Kernel blocks, Kernel all, u64 size) {
    for (u32 op = 0; op < 5; op++) {
        Memory memory;
        Ranges ranges = {memory, random_len()};
        u64 num_blocks = (ranges.len + KV_FOLD_BLOCK - 1) / KV_FOLD_BLOCK;
        u64 from = ranges.of(size), folds = memory.range(8 * num_blocks, 0);
        ReduceArgs args = {from, folds, memory.range(size, 0), ranges.len, op, ranges.is_aligned};
        run(blocks, &args);
        run(all, &args);
    }
}

static void fuzz_argmax(Kernel kernel, u64 size) {
    Memory memory;
    u64 columns = random_len(), rows = 1 + below(20000 / columns + 1);
    ArgmaxArgs args = {memory.range(rows * columns * size, size), 0, 0, rows, columns, columns, 0,
                       0};
    for (; args.len > KV_GROUP; args.len = (args.len + KV_GROUP - 1) / KV_GROUP) {
        args.to = memory.range(8 * rows * ((args.len + KV_GROUP - 1) / KV_GROUP), 0);
        run(kernel, &args);
        args.candidates = args.to;
    }
    args.to = memory.range(rows * size, size);
    args.is_last = 1;
    run(kernel, &args);
}

static void fuzz_random(Kernel kernel, u64 size) {
    Memory memory;
    u64 len = random_len();
    RandomArgs args = {memory.range(len * size, size), len, random_words(), -1.0, 3.0, {1, 2}};
    run(kernel, &args);
}

// Macros that run the kernels of each type, for the lists of types and of formulas.
#define FUZZ_SUM(name, T, ...) fuzz_fan(kv_sum_##name, sizeof(T));
#define FUZZ_PAIR_SUM(name, T, ...) fuzz_fan(kv_pair_sum_##name, sizeof(T), 2);
#define FUZZ_SUM_ROWS(name, T, ...) fuzz_sum_rows(kv_sum_rows_##name, sizeof(T));
#define FUZZ_CAST(from, From, to, To) fuzz_cast(kv_cast_##from##_##to, sizeof(From), sizeof(To));
#define FUZZ_OPERATIONS(name, T, ...)                                                              \
    fuzz_operations(kv_binary_##name, kv_unary_##name, kv_clip_##name, sizeof(T));
#define FUZZ_NUMBER(name, T, ...) fuzz_number(kv_fill_##name, kv_any_zero_##name, sizeof(T));
#define FUZZ_SHAPES(name, T, ...)                                                                  \
    fuzz_reduce(kv_reduce_blocks_##name, kv_reduce_##name, sizeof(T));                             \
    fuzz_argmax(kv_argmax_##name, sizeof(T));
#define FUZZ_RANDOM(name, T, ...)                                                                  \
    fuzz_random(kv_uniform_##name, sizeof(T));                                                     \
    fuzz_random(kv_normal_##name, sizeof(T));
#define FUZZ_CODES(name, T, ...)                                                                   \
    fuzz_codes<T, TwoBits>(kv_quantize_2bit_##name, kv_dequantize_2bit_##name);                    \
    fuzz_codes<T, OneBit>(kv_quantize_1bit_##name, kv_dequantize_1bit_##name);
#define FUZZ_UPDATE(Step) KV_FLOATS(FUZZ_UPDATE_OF, Step)
#define FUZZ_UPDATE_OF(name, T, Step) fuzz_update<T>(kv_##Step##_##name, Step::STATES);
#define FUZZ_UPDATE_ROWS(Step) KV_FLOATS(FUZZ_UPDATE_ROWS_OF, Step)
#define FUZZ_UPDATE_ROWS_OF(name, T, Step)                                                         \
    fuzz_update_rows<T>({kv_rows_##Step##_##name}, Step::STATES, false);
#define FUZZ_ROWWISE(Step) KV_FLOATS(FUZZ_ROWWISE_OF, Step)
#define FUZZ_ROWWISE_OF(name, T, Step)                                                             \
    fuzz_update_rows<T>({kv_row_states_##Step##_##name, kv_rowwise_##Step##_##name}, Step::STATES, \
                        true);
#define FUZZ_MEASURE(name, T, what, num_states)                                                    \
    fuzz_measure<T>(kv_measure_##what##_##name, num_states);
#define FUZZ_MEASURE_STEP(Step) KV_FLOATS(FUZZ_MEASURE, Step, Step::STATES)

int main(int, char **arguments) {
    random_words.seed(strtoull(arguments[1], nullptr, 10));
    u64 rounds = strtoull(arguments[2], nullptr, 10);
    for (u64 round = 0; round < rounds; round++) {
        KV_FLOATS(FUZZ_SUM)
        KV_WORDS(FUZZ_SUM)
        KV_HALVES(FUZZ_PAIR_SUM)
        fuzz_fan(kv_broadcast_8, 1);
        fuzz_fan(kv_broadcast_16, 2);
        fuzz_fan(kv_broadcast_32, 4);
        fuzz_fan(kv_broadcast_64, 8);
        fuzz_strided(kv_gather_1, kv_scatter_1, 1);
        fuzz_strided(kv_gather_2, kv_scatter_2, 2);
        fuzz_strided(kv_gather_4, kv_scatter_4, 4);
        fuzz_strided(kv_gather_8, kv_scatter_8, 8);
        KV_PAIRS(FUZZ_CAST)
        KV_DTYPES(FUZZ_OPERATIONS)
        KV_WORDS(FUZZ_NUMBER)
        fuzz_number(kv_fill_16, nullptr, 2);
        fuzz_transpose(kv_transpose_1, 1);
        fuzz_transpose(kv_transpose_2, 2);
        fuzz_transpose(kv_transpose_4, 4);
        fuzz_transpose(kv_transpose_8, 8);
        KV_DTYPES(FUZZ_SHAPES)
        KV_FLOATS(FUZZ_RANDOM)
        KV_FLOATS(FUZZ_CODES)
        KV_FORMULAS(FUZZ_UPDATE)
        KV_FLOATS(FUZZ_SUM_ROWS)
        KV_WORDS(FUZZ_SUM_ROWS)
        fuzz_scatter_rows();
        for (int count = 0; count < 5; count++) fuzz_plan_rows();
        fuzz_locate_rows();
        KV_LAZY_FORMULAS(FUZZ_UPDATE_ROWS)
        KV_ROW_FORMULAS(FUZZ_ROWWISE)
        KV_LAYER_FORMULAS(FUZZ_MEASURE_STEP)
        KV_FLOATS(FUZZ_MEASURE, gradient, 0)
    }
    printf("%llu batches\n", num_batches);
}
