// Sums of a batch: dst = ((addends[0] + addends[1]) + addends[2]) + .., every sum in one launch.
#include "kernel.h"

// One sum. `SumJob` in src/sum.rs has the same fields.
struct SumJob {
    // The tiles of the jobs before it.
    u64 first_tile;
    u64 dst;
    // In elements.
    u64 len;
    // Where its addends begin in the list of all.
    u32 first_addend;
    u32 num_addends;
    // How many elements come before all pointers are aligned to 16 bytes, or KV_NEVER.
    u32 head;
    u32 unused;
};

template <class T> KV_DEVICE void sum_element(const SumJob &job, const u64 *addends, u64 index) {
    typename Arithmetic<T>::Number sum = widen(((const T *)addends[0])[index]);
    for (u32 n = 1; n < job.num_addends; n++) sum = sum + widen(((const T *)addends[n])[index]);
    narrow(((T *)job.dst)[index], sum);
}

// The sums of a vector's elements.
template <class T> struct Sums {
    typedef typename Arithmetic<T>::Number Number;
    Number lanes[Vector<T>::LANES];

    KV_DEVICE_MEMBER void begin(const Vector<T> &vector) {
#pragma unroll
        for (u32 lane = 0; lane < Vector<T>::LANES; lane++) lanes[lane] = widen(vector.lanes[lane]);
    }
    KV_DEVICE_MEMBER void add(const Vector<T> &vector) {
#pragma unroll
        for (u32 lane = 0; lane < Vector<T>::LANES; lane++) lanes[lane] = lanes[lane] + widen(vector.lanes[lane]);
    }
    KV_DEVICE_MEMBER void end(Vector<T> &vector) const {
#pragma unroll
        for (u32 lane = 0; lane < Vector<T>::LANES; lane++) narrow(vector.lanes[lane], lanes[lane]);
    }
};

// Bytes stay four to a word: all but their highest bits are added, and those are what both have and what is carried.
template <> struct Sums<u8> {
    u32 words[4];

    KV_DEVICE_MEMBER void begin(const Vector<u8> &vector) {
#pragma unroll
        for (u32 word = 0; word < 4; word++) words[word] = vector.words[word];
    }
    KV_DEVICE_MEMBER void add(const Vector<u8> &vector) {
        const u32 HIGHEST = 0x80808080u;
#pragma unroll
        for (u32 word = 0; word < 4; word++) {
            u32 one = words[word], other = vector.words[word];
            words[word] = ((one & ~HIGHEST) + (other & ~HIGHEST)) ^ ((one ^ other) & HIGHEST);
        }
    }
    KV_DEVICE_MEMBER void end(Vector<u8> &vector) const {
#pragma unroll
        for (u32 word = 0; word < 4; word++) vector.words[word] = words[word];
    }
};

// Elements from `index` on: one vector in each of `COUNT` places that are a block's threads apart.
template <class T, u32 COUNT> KV_DEVICE void sum_vectors(const SumJob &job, const u64 *addends, u64 index) {
    const u32 STRIDE = KV_THREADS * Vector<T>::LANES;
    Vector<T> loaded[COUNT];
    Sums<T> sums[COUNT];
#pragma unroll
    for (u32 v = 0; v < COUNT; v++) load_16(loaded[v].words, (const T *)addends[0] + index + v * STRIDE);
#pragma unroll
    for (u32 v = 0; v < COUNT; v++) sums[v].begin(loaded[v]);
    for (u32 n = 1; n < job.num_addends; n++) {
#pragma unroll
        for (u32 v = 0; v < COUNT; v++) load_16(loaded[v].words, (const T *)addends[n] + index + v * STRIDE);
#pragma unroll
        for (u32 v = 0; v < COUNT; v++) sums[v].add(loaded[v]);
    }
#pragma unroll
    for (u32 v = 0; v < COUNT; v++) {
        sums[v].end(loaded[v]);
        store_16((T *)job.dst + index + v * STRIDE, loaded[v].words);
    }
}

template <class T> KV_DEVICE void sum_tile(const SumJob &job, const u64 *addends, u64 tile) {
    const u32 LANES = Vector<T>::LANES, TILE = KV_TILE_BYTES / sizeof(T);
    const u32 VECTORS = TILE / (LANES * KV_THREADS);
    // Eight sums of a vector of halves are as many as four vectors of the others have.
    const u32 AT_ONCE = sizeof(T) == 2 ? VECTORS / 2 : VECTORS;
    u64 head = job.head == KV_NEVER ? 0 : job.head;
    // The first tile has the elements before the first aligned one, too.
    u64 begin = head + tile * TILE, end = begin + TILE < job.len ? begin + TILE : job.len;
    if (tile == 0 && KV_THREAD < head) sum_element<T>(job, addends, KV_THREAD);
    if (job.head != KV_NEVER && begin + TILE <= job.len) {
#pragma unroll
        for (u32 v = 0; v < VECTORS; v += AT_ONCE)
            sum_vectors<T, AT_ONCE>(job, addends, begin + (v * KV_THREADS + KV_THREAD) * LANES);
        return;
    }
    u64 rest = begin;
    if (job.head != KV_NEVER) {
        u64 vector = begin + KV_THREAD * LANES;
        for (; vector + LANES <= end; vector += KV_THREADS * LANES) sum_vectors<T, 1>(job, addends, vector);
        rest = begin < end ? end - (end - begin) % LANES : end;
    }
    for (u64 index = rest + KV_THREAD; index < end; index += KV_THREADS) sum_element<T>(job, addends, index);
}

template <class T> KV_DEVICE void sum(const BatchArgs<SumJob> &args) {
    for (u64 tile = KV_BLOCK; tile < args.num_tiles; tile += KV_GRID) {
        const SumJob &job = job_of(args.jobs, args.num_jobs, tile);
        sum_tile<T>(job, args.addends + job.first_addend, tile - job.first_tile);
    }
}

KV_KERNEL(kv_sum_f32, BatchArgs<SumJob>, 4) { sum<float>(args); }
KV_KERNEL(kv_sum_f64, BatchArgs<SumJob>, 4) { sum<double>(args); }
KV_KERNEL(kv_sum_f16, BatchArgs<SumJob>, 4) { sum<f16>(args); }
KV_KERNEL(kv_sum_bf16, BatchArgs<SumJob>, 4) { sum<bf16>(args); }
KV_KERNEL(kv_sum_8, BatchArgs<SumJob>, 4) { sum<u8>(args); }
KV_KERNEL(kv_sum_32, BatchArgs<SumJob>, 4) { sum<u32>(args); }
KV_KERNEL(kv_sum_64, BatchArgs<SumJob>, 4) { sum<u64>(args); }

#ifdef KV_EMULATED
// Sizes and places of fields, which Rust's structs have to have too.
extern "C" void kv_sum_layout(u64 *out) {
    const u64 layout[] = {sizeof(SumJob),
                          offsetof(SumJob, first_tile),
                          offsetof(SumJob, dst),
                          offsetof(SumJob, len),
                          offsetof(SumJob, first_addend),
                          offsetof(SumJob, num_addends),
                          offsetof(SumJob, head),
                          sizeof(BatchArgs<SumJob>),
                          offsetof(BatchArgs<SumJob>, jobs),
                          offsetof(BatchArgs<SumJob>, addends),
                          offsetof(BatchArgs<SumJob>, num_tiles),
                          offsetof(BatchArgs<SumJob>, num_jobs)};
    memcpy(out, layout, sizeof layout);
}
#endif
