// Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
// The formulas of optimizers for one element: the operations of the Rust code, in its
// order.
#pragma once

#include "step.h"

KV_STEP(Sgd, false, 0, keep, learning_rate, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A new_w = k[keep] * w - k[learning_rate] * q;
    w = new_w;
}

KV_STEP(SgdMomentum, false, 1, momentum, decay, learning_rate, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A m = k[momentum] * s[0] - k[decay] * w - k[learning_rate] * q;
    const A new_w = w + m;
    const A new_s0 = m;
    w = new_w;
    s[0] = new_s0;
}

KV_STEP(Nag, false, 1, momentum, ahead, learning_rate, decay, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A m = k[momentum] * s[0];
    const A change = k[learning_rate] * q + k[decay] * w;
    const A weight = w - m + k[ahead] * (m - change);
    const A m_2 = m - (k[learning_rate] * q + k[decay] * weight);
    const A new_w = weight;
    const A new_s0 = m_2;
    w = new_w;
    s[0] = new_s0;
}

KV_STEP(Nesterov, false, 1, momentum, learning_rate, weight_decay, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A r = q + k[weight_decay] * w;
    const A m = k[momentum] * s[0] + r;
    const A new_w = w - k[learning_rate] * (r + k[momentum] * m);
    const A new_s0 = m;
    w = new_w;
    s[0] = new_s0;
}

KV_STEP(Dcasgd, false, 1, learning_rate, weight_decay, lamda, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A slope = q + k[weight_decay] * w + k[lamda] * q * q * (w - s[0]);
    const A new_w = w - k[learning_rate] * slope;
    const A new_s0 = w;
    w = new_w;
    s[0] = new_s0;
}

KV_STEP(DcasgdMomentum, false, 2, momentum, learning_rate, weight_decay, lamda, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A slope = q + k[weight_decay] * w + k[lamda] * q * q * (w - s[1]);
    const A m = k[momentum] * s[0] - k[learning_rate] * slope;
    const A new_w = w + m;
    const A new_s0 = m;
    const A new_s1 = w;
    w = new_w;
    s[0] = new_s0;
    s[1] = new_s1;
}

KV_STEP(Sgld, true, 0, half_rate, weight_decay, deviation, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A noise = (A)standard_normal(job->stream, job->count, index);
    const A drift = k[half_rate] * (q + k[weight_decay] * w);
    const A new_w = w - drift + k[deviation] * noise;
    w = new_w;
}

KV_STEP(Adam, false, 2, learning_rate, beta1, rest1, beta2, rest2, epsilon, weight_decay, decay, rescale, clip) {
    const A q = ::clip(k[rescale] * g + k[weight_decay] * w, k[clip]);
    const A m = k[beta1] * s[0] + k[rest1] * q;
    const A v = k[beta2] * s[1] + k[rest2] * (q * q);
    const A step = k[learning_rate] * m / (::root(v) + k[epsilon]);
    const A new_w = w - step - k[decay] * w;
    const A new_s0 = m;
    const A new_s1 = v;
    w = new_w;
    s[0] = new_s0;
    s[1] = new_s1;
}

KV_STEP(AdaGrad, false, 1, learning_rate, weight_decay, epsilon, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A history = s[0] + q * q;
    const A slope = q / ::root(history + k[epsilon]) + k[weight_decay] * w;
    const A new_w = w - k[learning_rate] * slope;
    const A new_s0 = history;
    w = new_w;
    s[0] = new_s0;
}

KV_STEP(AdaDelta, false, 2, rho, rest, epsilon, weight_decay, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A gradients = k[rho] * s[0] + k[rest] * (q * q);
    const A step = ::root(s[1] + k[epsilon]) / ::root(gradients + k[epsilon]) * q;
    const A steps = k[rho] * s[1] + k[rest] * (step * step);
    const A new_w = w - (step + k[weight_decay] * w);
    const A new_s0 = gradients;
    const A new_s1 = steps;
    w = new_w;
    s[0] = new_s0;
    s[1] = new_s1;
}

KV_STEP(RmsProp, false, 1, gamma1, rest, learning_rate, epsilon_under, epsilon_beside, weight_decay, decay, rescale, clip, clip_weights) {
    const A q = ::clip(k[rescale] * g + k[weight_decay] * w, k[clip]);
    const A n = k[gamma1] * s[0] + k[rest] * (q * q);
    const A root = ::root(n + k[epsilon_under]) + k[epsilon_beside];
    const A slope = q / root + k[decay] * w;
    const A new_w = ::clip(w - k[learning_rate] * slope, k[clip_weights]);
    const A new_s0 = n;
    w = new_w;
    s[0] = new_s0;
}

KV_STEP(RmsPropCentered, false, 3, gamma1, rest, gamma2, learning_rate, epsilon_under, epsilon_beside, weight_decay, decay, rescale, clip, clip_weights) {
    const A q = ::clip(k[rescale] * g + k[weight_decay] * w, k[clip]);
    const A n = k[gamma1] * s[0] + k[rest] * (q * q);
    const A mean = k[gamma1] * s[1] + k[rest] * q;
    const A variance = n - mean * mean;
    const A variance_2 = (variance < (A)0 ? (A)0 : variance);
    const A root = ::root(variance_2 + k[epsilon_under]) + k[epsilon_beside];
    const A slope = q / root + k[decay] * w;
    const A d = k[gamma2] * s[2] - k[learning_rate] * slope;
    const A new_w = ::clip(w + d, k[clip_weights]);
    const A new_s0 = n;
    const A new_s1 = mean;
    const A new_s2 = d;
    w = new_w;
    s[0] = new_s0;
    s[1] = new_s1;
    s[2] = new_s2;
}

KV_STEP(Ftrl, false, 2, learning_rate, weight_decay, lamda1, beta, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A sum = s[1] + q * q;
    const A z = s[0] + q - (::root(sum) - ::root(s[1])) * w / k[learning_rate];
    const A strength = (k[beta] + ::root(sum)) / k[learning_rate] + k[weight_decay];
    const A leader = (::sign(z) * k[lamda1] - z) / strength;
    const A weight = (::absolute(z) <= k[lamda1] ? (A)0 : leader);
    const A new_w = weight;
    const A new_s0 = z;
    const A new_s1 = sum;
    w = new_w;
    s[0] = new_s0;
    s[1] = new_s1;
}

KV_STEP(Adamax, false, 2, learning_rate, beta1, rest1, beta2, weight_decay, rescale, clip) {
    const A q = ::clip(k[rescale] * g + k[weight_decay] * w, k[clip]);
    const A m = k[beta1] * s[0] + k[rest1] * q;
    const A faded = k[beta2] * s[1];
    const A size = ::absolute(q);
    const A u = (faded > size ? faded : size);
    const A step = (u == (A)0 ? (A)0 : k[learning_rate] * m / u);
    const A new_w = w - step;
    const A new_s0 = m;
    const A new_s1 = u;
    w = new_w;
    s[0] = new_s0;
    s[1] = new_s1;
}

KV_STEP(Nadam, false, 2, learning_rate, gradient_share, mean_share, beta1, rest1, beta2, rest2, correction, epsilon, weight_decay, rescale, clip) {
    const A q = ::clip(k[rescale] * g + k[weight_decay] * w, k[clip]);
    const A m = k[beta1] * s[0] + k[rest1] * q;
    const A v = k[beta2] * s[1] + k[rest2] * (q * q);
    const A ahead = k[gradient_share] * q + k[mean_share] * m;
    const A size = ::root(v / k[correction]) + k[epsilon];
    const A new_w = w - k[learning_rate] * ahead / size;
    const A new_s0 = m;
    const A new_s1 = v;
    w = new_w;
    s[0] = new_s0;
    s[1] = new_s1;
}

KV_STEP(Signum, false, 1, momentum, rest, keep, learning_rate, weight_decay, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A m = k[momentum] * s[0] - k[rest] * (q + k[weight_decay] * w);
    const A new_w = k[keep] * w + k[learning_rate] * ::sign(m);
    const A new_s0 = m;
    w = new_w;
    s[0] = new_s0;
}

KV_STEP(SignSgd, false, 0, keep, learning_rate, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A new_w = k[keep] * w - k[learning_rate] * ::sign(q);
    w = new_w;
}

KV_STEP(Ftml, false, 3, strength, correction, beta1, rest1, beta2, rest2, epsilon, weight_decay, rescale, clip) {
    const A q = ::clip(k[rescale] * g + k[weight_decay] * w, k[clip]);
    const A v = k[beta2] * s[1] + k[rest2] * (q * q);
    const A next = k[strength] * (::root(v / k[correction]) + k[epsilon]);
    const A sigma = next - k[beta1] * s[0];
    const A z = k[beta1] * s[2] + k[rest1] * q - sigma * w;
    const A new_w = -z / next;
    const A new_s0 = next;
    const A new_s1 = v;
    const A new_s2 = z;
    w = new_w;
    s[0] = new_s0;
    s[1] = new_s1;
    s[2] = new_s2;
}

KV_STEP(Lion, false, 1, learning_rate, beta1, rest1, beta2, rest2, keep, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A direction = ::sign(k[beta1] * s[0] + k[rest1] * q);
    const A m = k[beta2] * s[0] + k[rest2] * q;
    const A new_w = k[keep] * w - k[learning_rate] * direction;
    const A new_s0 = m;
    w = new_w;
    s[0] = new_s0;
}

KV_STEP(AdaBelief, false, 2, learning_rate, beta1, rest1, beta2, rest2, correction, epsilon, keep, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A m = k[beta1] * s[0] + k[rest1] * q;
    const A surprise = q - m;
    const A s_2 = k[beta2] * s[1] + k[rest2] * (surprise * surprise) + k[epsilon];
    const A size = ::root(s_2 / k[correction]) + k[epsilon];
    const A new_w = k[keep] * w - k[learning_rate] * m / size;
    const A new_s0 = m;
    const A new_s1 = s_2;
    w = new_w;
    s[0] = new_s0;
    s[1] = new_s1;
}

KV_STEP(Lars, false, 0, learning_rate, weight_decay, eta, epsilon, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A new_w = w - k[learning_rate] * (q + k[weight_decay] * w);
    w = new_w;
}

KV_NORMS(Lars, 0) {
    norms[0] = w;
    norms[1] = k[rescale] * g;
}

KV_STEP(LarsMomentum, false, 1, momentum, learning_rate, weight_decay, eta, epsilon, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A m = k[momentum] * s[0] - k[learning_rate] * (q + k[weight_decay] * w);
    const A new_w = w + m;
    const A new_s0 = m;
    w = new_w;
    s[0] = new_s0;
}

KV_NORMS(LarsMomentum, 0) {
    norms[0] = w;
    norms[1] = k[rescale] * g;
}

KV_STEP(Lamb, false, 2, learning_rate, beta1, rest1, beta2, rest2, correction, epsilon, weight_decay, lower_bound, upper_bound, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A m = k[beta1] * s[0] + k[rest1] * q;
    const A v = k[beta2] * s[1] + k[rest2] * (q * q);
    const A u = k[correction] * m / (::root(v) + k[epsilon]) + k[weight_decay] * w;
    const A new_w = w - k[learning_rate] * u;
    const A new_s0 = m;
    const A new_s1 = v;
    w = new_w;
    s[0] = new_s0;
    s[1] = new_s1;
}

KV_NORMS(Lamb, 2) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A m = k[beta1] * s[0] + k[rest1] * q;
    const A v = k[beta2] * s[1] + k[rest2] * (q * q);
    const A u = k[correction] * m / (::root(v) + k[epsilon]) + k[weight_decay] * w;
    norms[0] = w;
    norms[1] = u;
}

KV_STEP(GroupAdaGrad, false, 1, learning_rate, epsilon, weight_decay, rescale, clip) {
    const A q = ::clip(k[rescale] * g, k[clip]);
    const A slope = q / ::root(s[0] + k[epsilon]) + k[weight_decay] * w;
    const A new_w = w - k[learning_rate] * slope;
    const A new_s0 = s[0];
    w = new_w;
    s[0] = new_s0;
}

KV_ROW_MEASURE(GroupAdaGrad) {
    return ::clip(k[rescale] * g, k[clip]);
}

KV_ROW_STATE(GroupAdaGrad) {
    const A new_s0 = s[0] + mean;
    s[0] = new_s0;
}

// The formulas to compile. If KV_FORMULA is defined, it is the only one.
#ifdef KV_FORMULA
#define KV_FORMULAS(Use) KV_FOR(KV_FORMULA, Use)
#define KV_LAZY_FORMULAS(Use) KV_FOR(KV_FORMULA, Use)
#define KV_LAYER_FORMULAS(Use) KV_FOR(KV_FORMULA, Use)
#define KV_ROW_FORMULAS(Use) KV_FOR(KV_FORMULA, Use)
#else
#define KV_FORMULAS(Use) Use(Sgd) Use(SgdMomentum) Use(Nag) Use(Nesterov) Use(Dcasgd) Use(DcasgdMomentum) Use(Sgld) Use(Adam) Use(AdaGrad) Use(AdaDelta) Use(RmsProp) Use(RmsPropCentered) Use(Ftrl) Use(Adamax) Use(Nadam) Use(Signum) Use(SignSgd) Use(Ftml) Use(Lion) Use(AdaBelief) Use(Lars) Use(LarsMomentum) Use(Lamb)
#define KV_LAZY_FORMULAS(Use) Use(Sgd) Use(SgdMomentum) Use(Adam) Use(AdaGrad) Use(Ftrl)
#define KV_LAYER_FORMULAS(Use) Use(Lars) Use(LarsMomentum) Use(Lamb)
#define KV_ROW_FORMULAS(Use) Use(GroupAdaGrad)
#endif
