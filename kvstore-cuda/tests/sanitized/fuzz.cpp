// Random batches through every kernel, with the sanitizers watching: `fuzz SEED ROUNDS`. Every range is a block of its
// own, exactly as long as it has to be. What comes out is held against the host's bits elsewhere.
#include "cast.cu"
#include "compress.cu"
#include "elementwise.cu"
#include "sum.cu"
#include "update_adaptive.cu"
#include "update_sgd.cu"

#include <random>
#include <vector>

static std::mt19937_64 random_words;

static u64 below(u64 limit) { return random_words() % limit; }

// Blocks that live as long as a round.
struct Memory {
    std::vector<u8 *> blocks;

    ~Memory() {
        for (u8 *block : blocks) free(block);
    }

    // Returns a range of random bytes that begins so many bytes beyond an aligned one.
    u64 range(u64 num_bytes, u64 beyond) {
        u8 *block = (u8 *)malloc(num_bytes + beyond);
        blocks.push_back(block);
        for (u64 index = 0; index < num_bytes; index++) block[beyond + index] = (u8)random_words();
        return (u64)(block + beyond);
    }
};

static u64 random_len() {
    switch (below(3)) {
    case 0: return 1 + below(40);
    case 1: return 4090 + below(20);
    default: return 1 + below(20000);
    }
}

typedef void (*Kernel)(const void *, u32, u32);

static void fuzz_sum(Kernel kernel, u64 size) {
    Memory memory;
    std::vector<SumJob> jobs;
    std::vector<u64> addends;
    u64 num_tiles = 0;
    for (u64 count = 1 + below(4); count > 0; count--) {
        u64 len = random_len(), place = below(16) * size % 16;
        bool is_aligned = below(4) != 0;
        u32 num_addends = 1 + (u32)below(18), first = (u32)addends.size();
        for (u32 n = 0; n < num_addends; n++)
            addends.push_back(memory.range(len * size, is_aligned ? place : below(16) * size % 16));
        u64 dst = below(2) ? addends[first] : memory.range(len * size, place);
        u64 head = (16 - dst % 16) % 16 / size;
        for (u32 n = 0; n < num_addends; n++) is_aligned = is_aligned && addends[first + n] % 16 == dst % 16;
        is_aligned = is_aligned && head < len;
        u64 after_head = is_aligned ? len - head : len, tile = KV_TILE_BYTES / size;
        jobs.push_back({num_tiles, dst, len, first, num_addends, is_aligned ? (u32)head : KV_NEVER, 0});
        num_tiles += (after_head + tile - 1) / tile;
    }
    BatchArgs<SumJob> args = {jobs.data(), addends.data(), num_tiles, (u32)jobs.size(), 0};
    kernel(&args, 1 + (u32)below(5), (u32)below(1000));
}

static void fuzz_update(Kernel kernel, u64 size, u32 num_states) {
    Memory memory;
    std::vector<UpdateJob> jobs;
    std::vector<u64> addends;
    u64 num_tiles = 0, number = size == 8 ? 8 : 4;
    for (u64 count = 1 + below(4); count > 0; count--) {
        UpdateJob job = {};
        job.first_tile = num_tiles;
        job.len = random_len();
        bool is_aligned = below(2) != 0, is_in_place = below(2) != 0;
        u64 beyond = is_aligned ? 0 : 1 + below(3);
        auto range = [&](u64 of) { return memory.range(job.len * of, beyond * of % 16); };
        job.weight_from = range(size);
        job.weight_to = is_in_place ? job.weight_from : range(size);
        for (u32 n = 0; n < num_states + (size == 2 ? 1 : 0); n++) {
            job.states_from[n] = range(number);
            job.states_to[n] = is_in_place ? job.states_from[n] : range(number);
        }
        for (double &scalar : job.scalars) scalar = (double)below(1000) / 500;
        job.first_addend = (u32)addends.size();
        job.num_addends = 1 + (u32)below(6);
        for (u32 n = 0; n < job.num_addends; n++) addends.push_back(range(size));
        job.is_aligned = is_aligned;
        num_tiles += (job.len + KV_UPDATE_TILE - 1) / KV_UPDATE_TILE;
        jobs.push_back(job);
    }
    BatchArgs<UpdateJob> args = {jobs.data(), addends.data(), num_tiles, (u32)jobs.size(), 0};
    kernel(&args, 1 + (u32)below(5), (u32)below(1000));
}

template <class Code> static void fuzz_codes(Kernel quantize, Kernel dequantize, u64 size) {
    Memory memory;
    std::vector<QuantizeJob> values;
    std::vector<DequantizeJob> sums;
    std::vector<u64> codes;
    u64 num_tiles = 0, number = size == 8 ? 8 : 4;
    for (u64 count = 1 + below(4); count > 0; count--) {
        u64 len = random_len(), num_bytes = num_code_bytes<Code>(len);
        bool is_aligned = below(2) != 0;
        u64 beyond = is_aligned ? 0 : 1 + below(3);
        auto range = [&](u64 of) { return memory.range(len * of, beyond * of % 16); };
        u64 residual = range(number), made = memory.range(num_bytes, below(4) * 4);
        values.push_back(
            {num_tiles, len, range(size), residual, below(2) ? residual : range(number), made, 0.5, is_aligned, 0});
        sums.push_back({num_tiles, len, range(size), 0.5, (u32)codes.size(), 1 + (u32)below(4), is_aligned, 0});
        codes.push_back(made);
        for (u32 n = 1; n < sums.back().num_addends; n++) codes.push_back(memory.range(num_bytes, below(16)));
        num_tiles += (num_bytes + KV_CODE_TILE - 1) / KV_CODE_TILE;
    }
    BatchArgs<QuantizeJob> one = {values.data(), nullptr, num_tiles, (u32)values.size(), 0};
    quantize(&one, 1 + (u32)below(5), (u32)below(1000));
    BatchArgs<DequantizeJob> other = {sums.data(), codes.data(), num_tiles, (u32)sums.size(), 0};
    dequantize(&other, 1 + (u32)below(5), (u32)below(1000));
}

#define FUZZ_CODES(name, size)                                                                                         \
    fuzz_codes<TwoBits>(kv_quantize_2bit_##name, kv_dequantize_2bit_##name, size);                                     \
    fuzz_codes<OneBit>(kv_quantize_1bit_##name, kv_dequantize_1bit_##name, size);

static void fuzz_cast(Kernel kernel, u64 from_size, u64 to_size) {
    Memory memory;
    u64 len = random_len();
    bool is_aligned = below(2) != 0;
    u64 beyond = is_aligned ? 0 : 1 + below(3);
    auto range = [&](u64 of) { return memory.range(len * of, beyond * of % 16); };
    CastArgs args = {range(from_size), range(to_size), len, is_aligned, 0};
    kernel(&args, 1 + (u32)below(5), (u32)below(1000));
}

#define FUZZ_CASTS_TO(to, size)                                                                                        \
    fuzz_cast(kv_cast_f32_##to, 4, size);                                                                              \
    fuzz_cast(kv_cast_f64_##to, 8, size);                                                                              \
    fuzz_cast(kv_cast_f16_##to, 2, size);                                                                              \
    fuzz_cast(kv_cast_bf16_##to, 2, size);                                                                             \
    fuzz_cast(kv_cast_u8_##to, 1, size);                                                                               \
    fuzz_cast(kv_cast_i8_##to, 1, size);                                                                               \
    fuzz_cast(kv_cast_i32_##to, 4, size);                                                                              \
    fuzz_cast(kv_cast_i64_##to, 8, size);

// Every operation, by its number, and others; zeros are divisors too.
static void fuzz_operations(Kernel binary, Kernel unary, Kernel clip, u64 size) {
    for (u32 op = 0; op < 18; op++) {
        Memory memory;
        u64 len = random_len();
        u32 is_aligned = (u32)below(2), is_scalar = (u32)below(2), order = (u32)below(1000);
        u64 beyond = is_aligned ? 0 : 1 + below(3);
        auto range = [&]() { return memory.range(len * size, beyond * size % 16); };
        u64 from = range(), to = below(2) ? from : range(), rhs = is_scalar ? below(3) : range();
        BinaryArgs two = {from, to, rhs, len, op, is_scalar, (u32)below(2), is_aligned};
        binary(&two, 1 + (u32)below(5), order);
        UnaryArgs one = {from, to, len, op, is_aligned};
        unary(&one, 1 + (u32)below(5), order);
        ClipArgs limits = {from, to, len, random_words(), random_words(), is_aligned, 0};
        clip(&limits, 1 + (u32)below(5), order);
    }
}

static void fuzz_number(Kernel fill, Kernel any_zero, u64 size) {
    Memory memory;
    u64 len = random_len();
    u32 is_aligned = (u32)below(2);
    u64 range = memory.range(len * size, is_aligned ? 0 : size);
    FillArgs number = {range, len, random_words(), is_aligned, 0};
    fill(&number, 1 + (u32)below(5), (u32)below(1000));
    AnyZeroArgs zero = {range, len, memory.range(4, 4), is_aligned, 0};
    if (any_zero) any_zero(&zero, 1 + (u32)below(5), (u32)below(1000));
}

#define FUZZ_OPERATIONS(name, size) fuzz_operations(kv_binary_##name, kv_unary_##name, kv_clip_##name, size);

#define FUZZ_UPDATE(Step)                                                                                              \
    fuzz_update(kv_##Step##_f32, 4, Step::STATES);                                                                     \
    fuzz_update(kv_##Step##_f64, 8, Step::STATES);                                                                     \
    fuzz_update(kv_##Step##_f16, 2, Step::STATES);                                                                     \
    fuzz_update(kv_##Step##_bf16, 2, Step::STATES);

int main(int, char **arguments) {
    random_words.seed(strtoull(arguments[1], nullptr, 10));
    u64 rounds = strtoull(arguments[2], nullptr, 10);
    for (u64 round = 0; round < rounds; round++) {
        fuzz_sum(kv_sum_f32, 4);
        fuzz_sum(kv_sum_f64, 8);
        fuzz_sum(kv_sum_f16, 2);
        fuzz_sum(kv_sum_bf16, 2);
        fuzz_sum(kv_sum_8, 1);
        fuzz_sum(kv_sum_32, 4);
        fuzz_sum(kv_sum_64, 8);
        FUZZ_CASTS_TO(f32, 4)
        FUZZ_CASTS_TO(f64, 8)
        FUZZ_CASTS_TO(f16, 2)
        FUZZ_CASTS_TO(bf16, 2)
        FUZZ_CASTS_TO(u8, 1)
        FUZZ_CASTS_TO(i8, 1)
        FUZZ_CASTS_TO(i32, 4)
        FUZZ_CASTS_TO(i64, 8)
        FUZZ_OPERATIONS(f32, 4)
        FUZZ_OPERATIONS(f64, 8)
        FUZZ_OPERATIONS(f16, 2)
        FUZZ_OPERATIONS(bf16, 2)
        FUZZ_OPERATIONS(u8, 1)
        FUZZ_OPERATIONS(i8, 1)
        FUZZ_OPERATIONS(i32, 4)
        FUZZ_OPERATIONS(i64, 8)
        fuzz_number(kv_fill_8, kv_any_zero_8, 1);
        fuzz_number(kv_fill_16, nullptr, 2);
        fuzz_number(kv_fill_32, kv_any_zero_32, 4);
        fuzz_number(kv_fill_64, kv_any_zero_64, 8);
        FUZZ_CODES(f32, 4)
        FUZZ_CODES(f64, 8)
        FUZZ_CODES(f16, 2)
        FUZZ_CODES(bf16, 2)
        FUZZ_UPDATE(Sgd)
        FUZZ_UPDATE(SgdMomentum)
        FUZZ_UPDATE(Nag)
        FUZZ_UPDATE(Nesterov)
        FUZZ_UPDATE(Dcasgd)
        FUZZ_UPDATE(DcasgdMomentum)
        FUZZ_UPDATE(Signum)
        FUZZ_UPDATE(SignSgd)
        FUZZ_UPDATE(Test)
        FUZZ_UPDATE(Adam)
        FUZZ_UPDATE(AdaGrad)
        FUZZ_UPDATE(AdaDelta)
        FUZZ_UPDATE(RmsProp)
        FUZZ_UPDATE(RmsPropCentered)
        FUZZ_UPDATE(Ftrl)
        FUZZ_UPDATE(Adamax)
        FUZZ_UPDATE(Nadam)
        FUZZ_UPDATE(Ftml)
    }
    printf("%llu batches\n", rounds * (159 + 8 * 54 + 7));
}
