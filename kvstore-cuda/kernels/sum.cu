// Sums of a batch in one launch: dst = ((addends[0] + addends[1]) + addends[2]) + ..
#include "dtypes.h"
#include "fan.h"

// The sums of the elements of a vector.
template <class T> struct Sums {
    typedef typename Arithmetic<T>::Number Number;
    Number lanes[Vector<T>::LANES];

    KV_DEVICE_MEMBER void begin(const Vector<T> &vector) {
#pragma unroll
        for (u32 lane = 0; lane < Vector<T>::LANES; lane++) lanes[lane] = widen(vector.lanes[lane]);
    }
    KV_DEVICE_MEMBER void add(const Vector<T> &vector) {
#pragma unroll
        for (u32 lane = 0; lane < Vector<T>::LANES; lane++)
            lanes[lane] = lanes[lane] + widen(vector.lanes[lane]);
    }
    KV_DEVICE_MEMBER void end(Vector<T> &vector) const {
#pragma unroll
        for (u32 lane = 0; lane < Vector<T>::LANES; lane++) narrow(vector.lanes[lane], lanes[lane]);
    }
};

// Sums of bytes, four in a word. The lower seven bits of each byte are added as words, and the
// highest bits with an exclusive or, so that no carry leaves a byte.
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

template <class T> struct Sum {
    static KV_DEVICE_MEMBER void element(const FanJob &job, const u64 *addends, u64 index) {
        typename Arithmetic<T>::Number sum = widen(((const T *)addends[0])[index]);
#pragma unroll 1
        for (u32 n = 1; n < job.num_others; n++) sum = sum + widen(((const T *)addends[n])[index]);
        narrow(((T *)job.one)[index], sum);
    }

    static KV_DEVICE_MEMBER void vector(const FanJob &job, const u64 *addends, u64 index) {
        Sums<T> sums;
        fold<Vector<T>, KV_AHEAD>(
            0, job.num_others,
            [&](Vector<T> &x, u32 n) { load_16(x.words, (const T *)addends[n] + index); },
            [&](const Vector<T> &x, bool is_first) {
                if (is_first)
                    sums.begin(x);
                else
                    sums.add(x);
            });
        Vector<T> sum;
        sums.end(sum);
        store_16((T *)job.one + index, sum.words);
    }
};

// The sum of two half-precision values. A thread never has the unrounded sums of all elements of a
// vector, so it needs few registers, and eight blocks run side by side. `Sum` reaches 0.85 of the
// copy rate of an H200 for two `bf16` values, this kernel 1.00.
template <class T> struct PairSum {
    static KV_DEVICE_MEMBER void element(const FanJob &job, const u64 *addends, u64 index) {
        Sum<T>::element(job, addends, index);
    }

    static KV_DEVICE_MEMBER void vector(const FanJob &job, const u64 *addends, u64 index) {
        Vector<T> sum, other;
        load_16(sum.words, (const T *)addends[0] + index);
        load_16(other.words, (const T *)addends[1] + index);
#pragma unroll
        for (u32 lane = 0; lane < Vector<T>::LANES; lane++)
            narrow(sum.lanes[lane], widen(sum.lanes[lane]) + widen(other.lanes[lane]));
        store_16((T *)job.one + index, sum.words);
    }
};

#define KV_SUM(name, T, ...)                                                                       \
    KV_KERNEL(kv_sum_##name, BatchArgs<FanJob>, 4) { fan<T, Sum<T>>(args); }

#define KV_PAIR_SUM(name, T, ...)                                                                  \
    KV_KERNEL(kv_pair_sum_##name, BatchArgs<FanJob>, 8) { fan<T, PairSum<T>>(args); }

KV_FLOATS(KV_SUM)
KV_WORDS(KV_SUM)
KV_HALVES(KV_PAIR_SUM)

#ifdef KV_EMULATED
// The layout of the structs, which tests compare with the Rust structs.
extern "C" void kv_fan_layout(u64 *out) {
    const u64 layout[] = {sizeof(FanJob),
                          offsetof(FanJob, first_tile),
                          offsetof(FanJob, one),
                          offsetof(FanJob, len),
                          offsetof(FanJob, first_other),
                          offsetof(FanJob, num_others),
                          offsetof(FanJob, head),
                          sizeof(BatchArgs<FanJob>),
                          offsetof(BatchArgs<FanJob>, jobs),
                          offsetof(BatchArgs<FanJob>, addends),
                          offsetof(BatchArgs<FanJob>, num_tiles),
                          offsetof(BatchArgs<FanJob>, num_jobs)};
    memcpy(out, layout, sizeof layout);
}
#endif
