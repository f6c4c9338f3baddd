// Quantization of gradients to codes of one or two bits per element, and sums of codes. A thread
// computes one byte of codes.
#include "dtypes.h"
#include "lanes.h"

// A value to compress. `QuantizeJob` in src/args/quantize.rs has the same fields.
struct QuantizeJob {
    // The number of tiles of all earlier jobs.
    u64 first_tile;
    // The number of elements.
    u64 len;
    u64 gradient;
    // The old and the new residual. The addresses are equal if it is updated in place.
    u64 residual_from, residual_to;
    u64 codes;
    double threshold;
    // Whether the elements for a byte of codes can be loaded in one instruction.
    u32 is_aligned;
    u32 unused;
};

// A sum of codes. `DequantizeJob` in src/args/quantize.rs has the same fields.
struct DequantizeJob {
    // The number of tiles of all earlier jobs.
    u64 first_tile;
    // The number of elements.
    u64 len;
    u64 dst;
    double threshold;
    // The position of its codes in the list of addends.
    u32 first_addend;
    u32 num_addends;
    // Whether a thread can store its elements in one instruction.
    u32 is_aligned;
    u32 unused;
};

// The number of vectors that a thread computes from codes. They are KV_THREADS vectors apart. With
// one vector, too few bytes would be in flight, because codes are short.
#define KV_CODE_VECTORS 2

// Two bits per element: 3 is the threshold, 2 is the negated threshold, 0 is 0.
struct TwoBits {
    enum : u32 { BITS = 2 };

    template <class A> static KV_DEVICE_MEMBER u32 code_of(A sum, A threshold) {
        return sum >= threshold ? 3 : sum <= -threshold ? 2 : 0;
    }
    template <class A> static KV_DEVICE_MEMBER A meaning(u32 code, A threshold) {
        return code == 3 ? threshold : code == 2 ? -threshold : (A)0;
    }
};

// One bit per element: 1 is 1, 0 is -1.
struct OneBit {
    enum : u32 { BITS = 1 };

    template <class A> static KV_DEVICE_MEMBER u32 code_of(A sum, A threshold) {
        return sum > threshold ? 1 : 0;
    }
    template <class A> static KV_DEVICE_MEMBER A meaning(u32 code, A) {
        return code == 1 ? (A)1 : (A)-1;
    }
};

// The number of bytes of codes, rounded up to 32-bit words.
template <class Code> KV_DEVICE u64 num_code_bytes(u64 len) {
    const u64 ELEMENTS = 32 / Code::BITS;
    return (len + ELEMENTS - 1) / ELEMENTS * 4;
}

// The number of elements in a group of `most` elements that starts at `first`.
KV_DEVICE u32 count_at(u64 first, u64 len, u32 most) {
    if (first >= len) return 0;
    return len - first < most ? (u32)(len - first) : most;
}

template <class T, class Code> KV_DEVICE void quantize_byte(const QuantizeJob &job, u64 byte) {
    typedef typename Arithmetic<T>::Number Number;
    const u32 COUNT = 8 / Code::BITS;
    u64 first = byte * COUNT;
    u32 count = count_at(first, job.len, COUNT), codes = 0;
    Number threshold = (Number)job.threshold;
    Some<T, COUNT> gradient;
    Some<Number, COUNT> residual;
    load(gradient, job.gradient, first, count, job.is_aligned);
    load(residual, job.residual_from, first, count, job.is_aligned);
#pragma unroll
    for (u32 lane = 0; lane < COUNT; lane++) {
        Number sum = residual.lanes[lane] + widen(gradient.lanes[lane]);
        u32 code = Code::code_of(sum, threshold);
        Number sent = Code::meaning(code, threshold);
        residual.lanes[lane] = sum - sent;
        // Beyond the end, the elements are 0, and so are their codes.
        codes |= code << (8 - Code::BITS - lane * Code::BITS);
    }
    store(residual, job.residual_to, first, count, job.is_aligned);
    ((u8 *)job.codes)[byte] = (u8)codes;
}

template <class T, class Code> KV_DEVICE void quantize(const BatchArgs<QuantizeJob> &args) {
    for (u64 tile = KV_BLOCK; tile < args.num_tiles; tile += KV_GRID) {
        const QuantizeJob &job = job_of(args.jobs, args.num_jobs, tile);
        u64 byte = (tile - job.first_tile) * KV_THREADS + KV_THREAD;
        if (byte < num_code_bytes<Code>(job.len)) quantize_byte<T, Code>(job, byte);
    }
}

// The bytes of codes for the elements of a thread.
struct CodeBytes {
    u32 bytes[KV_CODE_VECTORS];
};

// Neighbouring threads store neighbouring vectors. The codes of a vector fill a byte or less.
template <class T, class Code>
KV_DEVICE void dequantize_vectors(const DequantizeJob &job, const u64 *addends, u64 first) {
    typedef typename Arithmetic<T>::Number Number;
    const u32 COUNT = Lanes<T>::COUNT;
    static_assert(8 % (COUNT * Code::BITS) == 0);
    Number threshold = (Number)job.threshold, sums[KV_CODE_VECTORS][COUNT];
    u64 index[KV_CODE_VECTORS];
#pragma unroll
    for (u32 v = 0; v < KV_CODE_VECTORS; v++) index[v] = first + v * (KV_THREADS * COUNT);
    fold<CodeBytes, 2>(
        0, job.num_addends,
        [&](CodeBytes &x, u32 n) {
#pragma unroll
            for (u32 v = 0; v < KV_CODE_VECTORS; v++)
                x.bytes[v] =
                    ((const u8 *)addends[n])[index[v] < job.len ? index[v] * Code::BITS / 8 : 0];
        },
        [&](const CodeBytes &x, bool is_first) {
#pragma unroll
            for (u32 v = 0; v < KV_CODE_VECTORS; v++) {
                u32 codes = x.bytes[v] << index[v] * Code::BITS % 8;
#pragma unroll
                for (u32 lane = 0; lane < COUNT; lane++) {
                    u32 code =
                        codes >> (8 - Code::BITS - lane * Code::BITS) & ((1u << Code::BITS) - 1);
                    Number meaning = Code::meaning(code, threshold);
                    sums[v][lane] = is_first ? meaning : sums[v][lane] + meaning;
                }
            }
        });
#pragma unroll
    for (u32 v = 0; v < KV_CODE_VECTORS; v++) {
        Some<T, COUNT> out;
#pragma unroll
        for (u32 lane = 0; lane < COUNT; lane++) narrow(out.lanes[lane], sums[v][lane]);
        store(out, job.dst, index[v], count_at(index[v], job.len, COUNT), job.is_aligned);
    }
}

template <class T, class Code> KV_DEVICE void dequantize(const BatchArgs<DequantizeJob> &args) {
    const u32 COUNT = Lanes<T>::COUNT, TILE = KV_CODE_VECTORS * KV_THREADS * COUNT;
    for (u64 tile = KV_BLOCK; tile < args.num_tiles; tile += KV_GRID) {
        const DequantizeJob &job = job_of(args.jobs, args.num_jobs, tile);
        u64 first = (tile - job.first_tile) * TILE + KV_THREAD * COUNT;
        dequantize_vectors<T, Code>(job, args.addends + job.first_addend, first);
    }
}

// For 64-bit elements, eight elements and their residuals take 32 of a thread's 64 registers.
#define KV_COMPRESS(name, T, ...)                                                                  \
    KV_KERNEL(kv_quantize_2bit_##name, BatchArgs<QuantizeJob>, 4) { quantize<T, TwoBits>(args); }  \
    KV_KERNEL(kv_quantize_1bit_##name, BatchArgs<QuantizeJob>, 4) { quantize<T, OneBit>(args); }   \
    KV_KERNEL(kv_dequantize_2bit_##name, BatchArgs<DequantizeJob>, 4) {                            \
        dequantize<T, TwoBits>(args);                                                              \
    }                                                                                              \
    KV_KERNEL(kv_dequantize_1bit_##name, BatchArgs<DequantizeJob>, 4) {                            \
        dequantize<T, OneBit>(args);                                                               \
    }

KV_FLOATS(KV_COMPRESS)

#ifdef KV_EMULATED
// The layout of the structs, which tests compare with the Rust structs.
extern "C" void kv_quantize_layout(u64 *out) {
    const u64 layout[] = {sizeof(QuantizeJob),
                          offsetof(QuantizeJob, len),
                          offsetof(QuantizeJob, gradient),
                          offsetof(QuantizeJob, residual_from),
                          offsetof(QuantizeJob, residual_to),
                          offsetof(QuantizeJob, codes),
                          offsetof(QuantizeJob, threshold),
                          offsetof(QuantizeJob, is_aligned),
                          sizeof(DequantizeJob),
                          offsetof(DequantizeJob, len),
                          offsetof(DequantizeJob, dst),
                          offsetof(DequantizeJob, threshold),
                          offsetof(DequantizeJob, first_addend),
                          offsetof(DequantizeJob, num_addends),
                          offsetof(DequantizeJob, is_aligned)};
    memcpy(out, layout, sizeof layout);
}
#endif
