// The formulas of optimizers for one element, as kvstore-core/src/rule has them: the same operations in the same
// order. `k` are the scalars in the order of the Rust struct's fields, `w` the weight, `s` the state, `g` the
// gradient.
#pragma once

#include "kernel.h"

// Moved into [-bound, bound]; what is no number stays none.
template <class A> KV_DEVICE A clip(A x, A bound) {
    A below = x > bound ? bound : x;
    return below < -bound ? -bound : below;
}

template <class A> KV_DEVICE A sign(A x) {
    A positive = x > (A)0 ? (A)1 : (A)0;
    return x < (A)0 ? (A)-1 : positive;
}

// A formula with its numbers of state and scalars. The one that has noise is in update_noise.cu.
#define KV_STEP(Name, num_states, num_scalars)                                                                         \
    struct Name {                                                                                                      \
        static const bool HAS_NOISE = false;                                                                           \
        static const u32 STATES = num_states, SCALARS = num_scalars;                                                   \
        template <class A> static KV_DEVICE_MEMBER void apply(const A *k, A &w, A *s, A g);                            \
    };                                                                                                                 \
    template <class A> KV_DEVICE_MEMBER void Name::apply(const A *k, A &w, A *s, A g)

KV_STEP(Sgd, 0, 4) {
    (void)s;
    A keep = k[0], learning_rate = k[1], q = clip(k[2] * g, k[3]);
    w = keep * w - learning_rate * q;
}

KV_STEP(SgdMomentum, 1, 5) {
    A momentum = k[0], decay = k[1], learning_rate = k[2], q = clip(k[3] * g, k[4]);
    s[0] = momentum * s[0] - decay * w - learning_rate * q;
    w = w + s[0];
}

KV_STEP(Nag, 1, 6) {
    A momentum = k[0], ahead = k[1], learning_rate = k[2], decay = k[3], q = clip(k[4] * g, k[5]);
    A m = momentum * s[0];
    A change = learning_rate * q + decay * w;
    w = w - m + ahead * (m - change);
    s[0] = m - (learning_rate * q + decay * w);
}

KV_STEP(Nesterov, 1, 5) {
    A momentum = k[0], learning_rate = k[1], weight_decay = k[2], q = clip(k[3] * g, k[4]);
    A r = q + weight_decay * w;
    s[0] = momentum * s[0] + r;
    w = w - learning_rate * (r + momentum * s[0]);
}

KV_STEP(Dcasgd, 1, 5) {
    A learning_rate = k[0], weight_decay = k[1], lamda = k[2], q = clip(k[3] * g, k[4]);
    A slope = q + weight_decay * w + lamda * q * q * (w - s[0]);
    s[0] = w;
    w = w - learning_rate * slope;
}

KV_STEP(DcasgdMomentum, 2, 6) {
    A momentum = k[0], learning_rate = k[1], weight_decay = k[2], lamda = k[3], q = clip(k[4] * g, k[5]);
    A slope = q + weight_decay * w + lamda * q * q * (w - s[1]);
    s[0] = momentum * s[0] - learning_rate * slope;
    s[1] = w;
    w = w + s[0];
}

KV_STEP(Adam, 2, 10) {
    A learning_rate = k[0], beta1 = k[1], rest1 = k[2], beta2 = k[3], rest2 = k[4], epsilon = k[5];
    A weight_decay = k[6], decay = k[7], q = clip(k[8] * g + weight_decay * w, k[9]);
    s[0] = beta1 * s[0] + rest1 * q;
    s[1] = beta2 * s[1] + rest2 * (q * q);
    A step = learning_rate * s[0] / (root(s[1]) + epsilon);
    w = w - step - decay * w;
}

KV_STEP(AdaGrad, 1, 5) {
    A learning_rate = k[0], weight_decay = k[1], epsilon = k[2], q = clip(k[3] * g, k[4]);
    s[0] = s[0] + q * q;
    A slope = q / root(s[0] + epsilon) + weight_decay * w;
    w = w - learning_rate * slope;
}

KV_STEP(AdaDelta, 2, 6) {
    A rho = k[0], rest = k[1], epsilon = k[2], weight_decay = k[3], q = clip(k[4] * g, k[5]);
    s[0] = rho * s[0] + rest * (q * q);
    A step = root(s[1] + epsilon) / root(s[0] + epsilon) * q;
    s[1] = rho * s[1] + rest * (step * step);
    w = w - (step + weight_decay * w);
}

KV_STEP(RmsProp, 1, 9) {
    A gamma1 = k[0], rest = k[1], learning_rate = k[2], epsilon = k[3], weight_decay = k[4], decay = k[5];
    A q = clip(k[6] * g + weight_decay * w, k[7]);
    s[0] = gamma1 * s[0] + rest * (q * q);
    A slope = q / root(s[0] + epsilon) + decay * w;
    w = clip(w - learning_rate * slope, k[8]);
}

KV_STEP(RmsPropCentered, 3, 10) {
    A gamma1 = k[0], rest = k[1], gamma2 = k[2], learning_rate = k[3], epsilon = k[4], weight_decay = k[5];
    A decay = k[6], q = clip(k[7] * g + weight_decay * w, k[8]);
    s[0] = gamma1 * s[0] + rest * (q * q);
    s[1] = gamma1 * s[1] + rest * q;
    A variance = s[0] - s[1] * s[1];
    variance = variance < (A)0 ? (A)0 : variance;
    A slope = q / root(variance + epsilon) + decay * w;
    s[2] = gamma2 * s[2] - learning_rate * slope;
    w = clip(w + s[2], k[9]);
}

KV_STEP(Ftrl, 2, 6) {
    A learning_rate = k[0], weight_decay = k[1], lamda1 = k[2], beta = k[3], q = clip(k[4] * g, k[5]);
    A sum = s[1] + q * q;
    A z = s[0] + q - (root(sum) - root(s[1])) * w / learning_rate;
    A strength = (beta + root(sum)) / learning_rate + weight_decay;
    A leader = (sign(z) * lamda1 - z) / strength;
    w = size_of(z) <= lamda1 ? (A)0 : leader;
    s[0] = z;
    s[1] = sum;
}

KV_STEP(Adamax, 2, 7) {
    A learning_rate = k[0], beta1 = k[1], rest1 = k[2], beta2 = k[3], weight_decay = k[4];
    A q = clip(k[5] * g + weight_decay * w, k[6]);
    s[0] = beta1 * s[0] + rest1 * q;
    A faded = beta2 * s[1], size = size_of(q);
    s[1] = faded > size ? faded : size;
    w = w - (s[1] == (A)0 ? (A)0 : learning_rate * s[0] / s[1]);
}

KV_STEP(Nadam, 2, 12) {
    A learning_rate = k[0], gradient_share = k[1], mean_share = k[2], beta1 = k[3], rest1 = k[4], beta2 = k[5];
    A rest2 = k[6], correction = k[7], epsilon = k[8], weight_decay = k[9];
    A q = clip(k[10] * g + weight_decay * w, k[11]);
    s[0] = beta1 * s[0] + rest1 * q;
    s[1] = beta2 * s[1] + rest2 * (q * q);
    A ahead = gradient_share * q + mean_share * s[0];
    A size = root(s[1] / correction) + epsilon;
    w = w - learning_rate * ahead / size;
}

KV_STEP(Signum, 1, 7) {
    A momentum = k[0], rest = k[1], keep = k[2], learning_rate = k[3], weight_decay = k[4];
    A q = clip(k[5] * g, k[6]);
    s[0] = momentum * s[0] - rest * (q + weight_decay * w);
    w = keep * w + learning_rate * sign(s[0]);
}

KV_STEP(SignSgd, 0, 4) {
    (void)s;
    A keep = k[0], learning_rate = k[1], q = clip(k[2] * g, k[3]);
    w = keep * w - learning_rate * sign(q);
}

KV_STEP(Ftml, 3, 10) {
    A strength = k[0], correction = k[1], beta1 = k[2], rest1 = k[3], beta2 = k[4], rest2 = k[5];
    A epsilon = k[6], weight_decay = k[7], q = clip(k[8] * g + weight_decay * w, k[9]);
    s[1] = beta2 * s[1] + rest2 * (q * q);
    A next = strength * (root(s[1] / correction) + epsilon);
    A sigma = next - beta1 * s[0];
    s[2] = beta1 * s[2] + rest1 * q - sigma * w;
    s[0] = next;
    w = -s[2] / next;
}
