//! The formulas of all optimizers for one element, written directly: no blocks, no folded scalars,
//! no element types.
//!
//! Results are [`Approximate`], so each has the tolerance for a computation in `f32`.

use std::collections::BTreeMap;

use crate::approximate::Approximate;

/// The learning rate below which formulas that divide by it skip the update.
const SMALLEST_DIVISOR: f64 = 7.888_609_052_210_118e-31;

/// An optimizer: its name and its hyper-parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Naive {
    /// The name of the optimizer.
    pub name: &'static str,
    /// All its hyper-parameters.
    pub parameters: BTreeMap<&'static str, f64>,
}

/// A name, the default learning rate and weight decay, and the other hyper-parameters: name,
/// default, and the values that random programs choose from (none if they do not change it).
type Definition = (&'static str, f64, f64, &'static [(&'static str, f64, &'static [f64])]);

/// The names and defaults of `MXNet`'s Python classes. `AdamW` is from `PyTorch`, and
/// `nesterov` is from `MXNet`'s Scala classes.
///
/// Where a formula divides by a difference of two almost equal numbers, no small epsilon is chosen.
const DEFINITIONS: &[Definition] = &[
    ("sgd", 0.01, 0.0, &[("momentum", 0.0, &[0.0, 0.9, 0.5]), ("lazy_update", 1.0, &[])]),
    ("nag", 0.01, 0.0, &[("momentum", 0.0, &[0.0, 0.9, 0.5])]),
    ("nesterov", 0.01, 0.0, &[("momentum", 0.0, &[0.0, 0.9, 0.5])]),
    ("dcasgd", 0.01, 0.0, &[("momentum", 0.0, &[0.0, 0.9]), ("lamda", 0.04, &[0.04, 0.5])]),
    ("sgld", 0.01, 0.0, &[("seed", 0.0, &[])]),
    (
        "adam",
        0.001,
        0.0,
        &[
            ("beta1", 0.9, &[0.9, 0.5, 0.0]),
            ("beta2", 0.999, &[0.999, 0.9]),
            ("epsilon", 1e-8, &[1e-8, 1e-3]),
            ("decay_factor", 1.0, &[1.0, 0.9]),
            ("decoupled_wd", 0.0, &[0.0, 1.0]),
            ("pytorch_epsilon", 0.0, &[0.0, 1.0]),
            ("lazy_update", 1.0, &[]),
        ],
    ),
    (
        "adamw",
        0.001,
        0.01,
        &[
            ("beta1", 0.9, &[0.9, 0.5, 0.0]),
            ("beta2", 0.999, &[0.999, 0.9]),
            ("epsilon", 1e-8, &[1e-8, 1e-3]),
        ],
    ),
    ("adagrad", 0.01, 0.0, &[("epsilon", 1e-7, &[1e-7, 1e-3]), ("lazy_update", 1.0, &[])]),
    ("adadelta", 0.01, 0.0, &[("rho", 0.9, &[0.9, 0.05]), ("epsilon", 1e-5, &[1e-5, 1e-3])]),
    (
        "rmsprop",
        0.001,
        0.0,
        &[
            ("gamma1", 0.9, &[0.9, 0.5]),
            ("gamma2", 0.9, &[0.9, 0.0]),
            ("epsilon", 1e-8, &[1e-4, 1e-2]),
            ("centered", 0.0, &[0.0, 1.0]),
            ("clip_weights", 0.0, &[0.0, 2.0]),
            ("decoupled_wd", 0.0, &[0.0, 1.0]),
            ("pytorch_epsilon", 0.0, &[0.0, 1.0]),
        ],
    ),
    (
        "ftrl",
        0.1,
        0.0,
        &[
            ("lamda1", 0.01, &[0.0, 0.01, 2.0]),
            ("beta", 1.0, &[1.0, 0.1]),
            ("lazy_update", 1.0, &[]),
        ],
    ),
    ("adamax", 0.002, 0.0, &[("beta1", 0.9, &[0.9, 0.5, 0.0]), ("beta2", 0.999, &[0.999, 0.9])]),
    (
        "nadam",
        0.001,
        0.0,
        &[
            ("beta1", 0.9, &[0.9, 0.5, 0.0]),
            ("beta2", 0.999, &[0.999, 0.9]),
            ("epsilon", 1e-8, &[1e-8, 1e-3]),
            ("schedule_decay", 0.004, &[0.004, 0.5]),
        ],
    ),
    ("signum", 0.01, 0.0, &[("momentum", 0.9, &[0.0, 0.9]), ("wd_lh", 0.0, &[0.0, 0.01])]),
    (
        "ftml",
        0.01,
        0.0,
        &[
            ("beta1", 0.6, &[0.9, 0.5, 0.0]),
            ("beta2", 0.999, &[0.999, 0.9]),
            ("epsilon", 1e-8, &[1e-8, 1e-3]),
        ],
    ),
    ("lion", 1e-4, 0.0, &[("beta1", 0.9, &[0.9, 0.5]), ("beta2", 0.99, &[0.99, 0.9])]),
    (
        "adabelief",
        0.001,
        0.0,
        &[
            ("beta1", 0.9, &[0.9, 0.5]),
            ("beta2", 0.999, &[0.999, 0.9]),
            ("epsilon", 1e-8, &[1e-8, 1e-3]),
        ],
    ),
    (
        "lars",
        0.01,
        0.0,
        &[
            ("momentum", 0.0, &[0.0, 0.9, 0.5]),
            ("eta", 0.001, &[0.001, 0.5]),
            ("epsilon", 0.0, &[0.0, 1e-3]),
            ("momentum_correction", 1.0, &[0.0, 1.0]),
        ],
    ),
    (
        "lamb",
        0.001,
        0.0,
        &[
            ("beta1", 0.9, &[0.9, 0.5]),
            ("beta2", 0.999, &[0.999, 0.9]),
            ("epsilon", 1e-6, &[1e-6, 1e-3]),
            ("lower_bound", 0.0, &[0.0, 3.0]),
            ("upper_bound", 0.0, &[0.0, 4.0]),
            ("bias_correction", 1.0, &[0.0, 1.0]),
        ],
    ),
    ("groupadagrad", 0.01, 0.0, &[("epsilon", 1e-5, &[1e-5, 1e-3]), ("lazy_update", 1.0, &[])]),
    ("test", 0.01, 0.0, &[]),
];

fn definition(name: &str) -> &'static Definition {
    let found = DEFINITIONS.iter().find(|(other, ..)| *other == name);
    found.unwrap_or_else(|| panic!("optimizer `{name}`"))
}

impl Naive {
    /// Returns the optimizer with its defaults.
    pub fn new(name: &str) -> Self {
        let (name, learning_rate, wd, own) = *definition(name);
        let own = own.iter().map(|(name, default, _)| (*name, *default));
        let common = [
            ("learning_rate", learning_rate),
            ("wd", wd),
            ("rescale_grad", 1.0),
            ("clip_gradient", 0.0),
            ("begin_num_update", 0.0),
            ("staleness_power", 0.0),
        ];
        Self { name, parameters: common.into_iter().chain(own).collect() }
    }

    /// Returns the name of every optimizer.
    pub fn names() -> impl Iterator<Item = &'static str> {
        DEFINITIONS.iter().map(|(name, ..)| *name)
    }

    /// Returns the hyper-parameters of this optimizer that random programs change, each with the
    /// values to choose from.
    pub fn own_values(name: &str) -> impl Iterator<Item = (&'static str, &'static [f64])> {
        let own = definition(name).3.iter();
        own.filter(|(.., values)| !values.is_empty()).map(|(name, _, values)| (*name, *values))
    }

    /// Returns the optimizer with one hyper-parameter changed.
    #[must_use]
    pub fn with(mut self, name: &str, value: f64) -> Self {
        let parameter = self.parameters.get_mut(name);
        *parameter.unwrap_or_else(|| panic!("{} has no `{name}`", self.name)) = value;
        self
    }

    /// Returns a hyper-parameter.
    pub fn get(&self, name: &str) -> f64 {
        self.parameters[name]
    }

    /// Returns the state of one element of a key before its first update.
    pub fn state(&self, weight: f64, unit: f64) -> State {
        let zero = Approximate::exact(0.0, unit);
        let weight = Approximate::exact(weight, unit);
        State {
            a: zero,
            b: zero,
            c: zero,
            previous: weight,
            momentum_product: 1.0,
            skipped: 0,
            last_rate: None,
        }
    }

    /// Returns the two numbers of an element whose norms over its key or row an update needs, or
    /// `None` for most optimizers.
    pub fn measured(
        &self,
        due: UpdateScalars,
        weight: Approximate,
        gradient: f64,
        state: &State,
    ) -> Option<[Approximate; 2]> {
        self.due(due, gradient, state).measured(weight, state)
    }

    fn due(&self, due: UpdateScalars, gradient: f64, state: &State) -> NaiveStep<'_> {
        NaiveStep {
            h: self,
            lr: due.learning_rate,
            wd: due.weight_decay,
            t: due.count,
            g: Approximate::exact(gradient, state.unit()),
            norms: due.norms,
        }
    }

    /// Runs update `count` (counted from 1) of one element and returns the new weight. The learning
    /// rate and the weight decay are for this update and key.
    pub fn step(
        &self,
        due: UpdateScalars,
        weight: Approximate,
        gradient: f64,
        state: &mut State,
    ) -> Approximate {
        if matches!(self.name, "ftrl" | "ftml") && due.learning_rate.abs() < SMALLEST_DIVISOR {
            // A skipped update does not count for later bias corrections.
            state.skipped += 1;
            return weight;
        }
        self.due(due, gradient, state).run(weight, state)
    }
}

/// The scalars of one update of a key.
#[derive(Clone, Copy, Debug)]
pub struct UpdateScalars {
    /// The number of the update, counted from 1.
    pub count: u32,
    /// The learning rate, with schedule and multiplier.
    pub learning_rate: f64,
    /// The weight decay, with multiplier.
    pub weight_decay: f64,
    /// The norms of the numbers that [`Naive::measured`] returns, over the key or row.
    pub norms: Option<[Approximate; 2]>,
}

/// The state of one element. Each optimizer uses the fields that its formula names.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the optimizers' own names for them are in the formulas")]
pub struct State {
    pub a: Approximate,
    pub b: Approximate,
    pub c: Approximate,
    pub previous: Approximate,
    pub momentum_product: f64,
    pub skipped: u32,
    pub last_rate: Option<f64>,
}

impl State {
    fn unit(&self) -> f64 {
        self.a.unit()
    }

    /// Returns the numbers that a store keeps for this element, in the store's order.
    pub fn kept(&self, optimizer: &Naive) -> Vec<Approximate> {
        let is = |name| optimizer.get(name) != 0.0;
        match optimizer.name {
            "sgd" | "nag" | "nesterov" | "signum" | "lars" if is("momentum") => vec![self.a],
            "dcasgd" if is("momentum") => vec![self.a, self.previous],
            "dcasgd" => vec![self.previous],
            "rmsprop" if is("centered") => vec![self.a, self.b, self.c],
            "rmsprop" | "adagrad" | "groupadagrad" | "lion" | "test" => vec![self.a],
            "ftml" => vec![self.a, self.b, self.c],
            "adabelief" | "adam" | "adamw" | "adadelta" | "ftrl" | "adamax" | "nadam" | "lamb" => {
                vec![self.a, self.b]
            }
            _ => Vec::new(),
        }
    }
}

/// One update of one element: hyper-parameters, learning rate, weight decay, count, gradient and
/// norms.
pub(crate) struct NaiveStep<'a> {
    pub(crate) h: &'a Naive,
    pub(crate) lr: f64,
    pub(crate) wd: f64,
    t: u32,
    pub(crate) g: Approximate,
    pub(crate) norms: Option<[Approximate; 2]>,
}

impl NaiveStep<'_> {
    fn run(&self, w: Approximate, s: &mut State) -> Approximate {
        match self.h.name {
            "sgd" => self.sgd(w, &mut s.a),
            "nag" => self.nag(w, &mut s.a),
            "nesterov" => self.nesterov(w, &mut s.a),
            "dcasgd" => self.dcasgd(w, &mut s.a, &mut s.previous),
            // Without the noise.
            "sgld" => w - self.lr / 2.0 * (self.q() + self.wd * w),
            "adam" => self.adam(w, &mut s.a, &mut s.b),
            "adamw" => self.adamw(w, &mut s.a, &mut s.b),
            "adagrad" => self.adagrad(w, &mut s.a),
            "adadelta" => self.adadelta(w, &mut s.a, &mut s.b),
            "rmsprop" => self.rmsprop(w, s),
            "ftrl" => self.ftrl(w, &mut s.a, &mut s.b),
            "adamax" => self.adamax(w, &mut s.a, &mut s.b),
            "nadam" => self.nadam(w, s),
            "signum" => self.signum(w, &mut s.a),
            "ftml" => self.ftml(w, s),
            "lion" => self.lion(w, &mut s.a),
            "adabelief" => self.adabelief(w, &mut s.a, &mut s.b),
            "lars" => self.lars(w, s),
            "lamb" => self.lamb(w, s),
            "groupadagrad" => self.groupadagrad(w, s),
            "test" => {
                s.a = w + self.p("rescale_grad") * self.g;
                s.a
            }
            other => panic!("optimizer `{other}`"),
        }
    }

    pub(crate) fn p(&self, name: &str) -> f64 {
        self.h.get(name)
    }

    pub(crate) fn is(&self, flag: &str) -> bool {
        self.p(flag) != 0.0
    }

    /// Returns the gradient, rescaled and clipped.
    pub(crate) fn q(&self) -> Approximate {
        (self.p("rescale_grad") * self.g).clip(self.p("clip_gradient"))
    }

    /// Returns the gradient with weight decay, rescaled first and clipped last.
    fn q_decayed(&self, w: Approximate) -> Approximate {
        (self.p("rescale_grad") * self.g + self.wd * w).clip(self.p("clip_gradient"))
    }

    /// Returns `1 - b^t`. It is small at first, so the error of the power in `f64` matters.
    pub(crate) fn bias(&self, b: f64) -> Approximate {
        self.bias_after(b, self.t)
    }

    /// Returns `1 - b^t` for another `t`.
    fn bias_after(&self, b: f64, t: u32) -> Approximate {
        let power = b.powi(t.cast_signed());
        Approximate::folded(1.0 - power, 16.0 * f64::EPSILON, self.g.unit())
    }

    fn sgd(&self, w: Approximate, m: &mut Approximate) -> Approximate {
        if self.p("momentum") == 0.0 {
            return (1.0 - self.lr * self.wd) * w - self.lr * self.q();
        }
        *m = self.p("momentum") * *m - self.lr * self.wd * w - self.lr * self.q();
        w + *m
    }

    /// `MXNet`'s operator runs in place, so the momentum sees the new weight.
    fn nag(&self, w: Approximate, m: &mut Approximate) -> Approximate {
        let momentum = self.p("momentum");
        if momentum == 0.0 {
            return self.sgd(w, m);
        }
        *m = momentum * *m;
        let ahead = *m - self.lr * (self.q() + self.wd * w);
        let w = w - *m + (momentum + 1.0) * ahead;
        *m = *m - self.lr * (self.q() + self.wd * w);
        w
    }

    fn nesterov(&self, w: Approximate, m: &mut Approximate) -> Approximate {
        if self.p("momentum") == 0.0 {
            return self.sgd(w, m);
        }
        let r = self.q() + self.wd * w;
        *m = self.p("momentum") * *m + r;
        w - self.lr * (r + self.p("momentum") * *m)
    }

    fn dcasgd(&self, w: Approximate, m: &mut Approximate, p: &mut Approximate) -> Approximate {
        let q = self.q();
        let step = -(self.lr * (q + self.wd * w + self.p("lamda") * q * q * (w - *p)));
        *p = w;
        if self.p("momentum") == 0.0 {
            return w + step;
        }
        *m = self.p("momentum") * *m + step;
        w + *m
    }

    fn adam(&self, w: Approximate, m: &mut Approximate, v: &mut Approximate) -> Approximate {
        let is_decoupled = self.is("decoupled_wd");
        let q = if is_decoupled { self.q() } else { self.q_decayed(w) };
        let (beta1, beta2) = (self.p("beta1"), self.p("beta2"));
        let beta1_now = beta1 * self.p("decay_factor").powi(self.t.cast_signed() - 1);
        *m = beta1_now * *m + (1.0 - beta1_now) * q;
        *v = beta2 * *v + (1.0 - beta2) * q * q;
        let w_new = if self.is("pytorch_epsilon") {
            let root = (*v / self.bias(beta2)).sqrt();
            w - self.lr * (*m / self.bias(beta1) / (root + self.p("epsilon")))
        } else {
            let lr = self.lr * self.bias(beta2).sqrt() / self.bias(beta1);
            w - lr * (*m / (v.sqrt() + self.p("epsilon")))
        };
        if is_decoupled { w_new - self.lr * self.wd * w } else { w_new }
    }

    /// `PyTorch`'s form: the weight decays first, and epsilon is added to the corrected root.
    fn adamw(&self, w: Approximate, m: &mut Approximate, v: &mut Approximate) -> Approximate {
        let (q, beta1, beta2) = (self.q(), self.p("beta1"), self.p("beta2"));
        let w = (1.0 - self.lr * self.wd) * w;
        *m = beta1 * *m + (1.0 - beta1) * q;
        *v = beta2 * *v + (1.0 - beta2) * q * q;
        let (m, v) = (*m / self.bias(beta1), *v / self.bias(beta2));
        w - self.lr * (m / (v.sqrt() + self.p("epsilon")))
    }

    fn adagrad(&self, w: Approximate, h: &mut Approximate) -> Approximate {
        let q = self.q();
        *h = *h + q * q;
        w - self.lr * (q / (*h + self.p("epsilon")).sqrt() + self.wd * w)
    }

    fn adadelta(&self, w: Approximate, a: &mut Approximate, d: &mut Approximate) -> Approximate {
        let (q, rho, epsilon) = (self.q(), self.p("rho"), self.p("epsilon"));
        *a = rho * *a + (1.0 - rho) * q * q;
        let step = (*d + epsilon).sqrt() / (*a + epsilon).sqrt() * q;
        *d = rho * *d + (1.0 - rho) * step * step;
        w - (step + self.wd * w)
    }

    fn rmsprop(&self, w: Approximate, s: &mut State) -> Approximate {
        let State { a: n, b: mean, c: delta, .. } = s;
        let is_decoupled = self.is("decoupled_wd");
        let q = if is_decoupled { self.q() } else { self.q_decayed(w) };
        let (gamma1, epsilon) = (self.p("gamma1"), self.p("epsilon"));
        let root = |square: Approximate| {
            if self.is("pytorch_epsilon") {
                square.sqrt() + epsilon
            } else {
                (square + epsilon).sqrt()
            }
        };
        let decay = if is_decoupled { self.wd } else { 0.0 };
        *n = (1.0 - gamma1) * q * q + gamma1 * *n;
        let w = if self.is("centered") {
            *mean = (1.0 - gamma1) * q + gamma1 * *mean;
            let root = root(*n - *mean * *mean);
            *delta = self.p("gamma2") * *delta - self.lr * (q / root + decay * w);
            w + *delta
        } else {
            w - self.lr * (q / root(*n) + decay * w)
        };
        w.clip(self.p("clip_weights"))
    }

    fn ftrl(&self, w: Approximate, z: &mut Approximate, n: &mut Approximate) -> Approximate {
        let q = self.q();
        let n_new = *n + q * q;
        *z = *z + q - (n_new.sqrt() - n.sqrt()) * w / self.lr;
        *n = n_new;
        // The formula is continuous here: a weight that is just not zero is almost zero.
        let is_zero = z.value.abs() <= self.p("lamda1");
        let shrunk = self.p("lamda1") * z.sign() - *z;
        let shrunk = if is_zero { shrunk.as_zero() } else { shrunk };
        shrunk / ((n.sqrt() + self.p("beta")) / self.lr + self.wd)
    }

    /// Where `MXNet` divides 0 by 0, the weight stays unchanged.
    fn adamax(&self, w: Approximate, m: &mut Approximate, u: &mut Approximate) -> Approximate {
        let (q, beta1, beta2) = (self.q_decayed(w), self.p("beta1"), self.p("beta2"));
        *m = beta1 * *m + (1.0 - beta1) * q;
        *u = (beta2 * *u).max(q.abs());
        let is_zero = u.value == 0.0 && u.error == 0.0;
        if is_zero { w } else { w - self.lr * (*m / *u) / self.bias(beta1) }
    }

    fn nadam(&self, w: Approximate, s: &mut State) -> Approximate {
        let (q, beta1, beta2) = (self.q_decayed(w), self.p("beta1"), self.p("beta2"));
        let decay = |t: f64| beta1 * (1.0 - 0.5 * 0.96_f64.powf(t * self.p("schedule_decay")));
        let (now, next) = (decay(self.t.into()), decay(f64::from(self.t) + 1.0));
        s.momentum_product *= now;
        let (product, product_next) = (s.momentum_product, s.momentum_product * next);
        s.a = beta1 * s.a + (1.0 - beta1) * q;
        s.b = beta2 * s.b + (1.0 - beta2) * q * q;
        let m = (1.0 - now) / (1.0 - product) * q + next / (1.0 - product_next) * s.a;
        w - self.lr * (m / ((s.b / self.bias(beta2)).sqrt() + self.p("epsilon")))
    }

    fn signum(&self, w: Approximate, m: &mut Approximate) -> Approximate {
        let momentum = self.p("momentum");
        if momentum == 0.0 {
            let decay = self.wd + self.p("wd_lh");
            return (1.0 - self.lr * decay) * w - self.lr * self.q().sign();
        }
        *m = momentum * *m - (1.0 - momentum) * (self.q() + self.wd * w);
        (1.0 - self.lr * self.p("wd_lh")) * w + self.lr * m.sign()
    }

    #[expect(clippy::many_single_char_names, reason = "the letters of the formula")]
    fn ftml(&self, w: Approximate, s: &mut State) -> Approximate {
        let (q, beta1, beta2) = (self.q_decayed(w), self.p("beta1"), self.p("beta2"));
        let t = self.t - s.skipped;
        let State { a: d, b: v, c: z, .. } = s;
        *v = beta2 * *v + (1.0 - beta2) * q * q;
        let root = (*v / self.bias_after(beta2, t)).sqrt() + self.p("epsilon");
        let d_new = self.bias_after(beta1, t) / self.lr * root;
        *z = beta1 * *z + (1.0 - beta1) * q - (d_new - beta1 * *d) * w;
        *d = d_new;
        -*z / *d
    }

    fn lion(&self, w: Approximate, m: &mut Approximate) -> Approximate {
        let (q, beta1, beta2) = (self.q(), self.p("beta1"), self.p("beta2"));
        let direction = (beta1 * *m + (1.0 - beta1) * q).sign();
        *m = beta2 * *m + (1.0 - beta2) * q;
        (1.0 - self.lr * self.wd) * w - self.lr * direction
    }

    fn adabelief(&self, w: Approximate, m: &mut Approximate, v: &mut Approximate) -> Approximate {
        let (q, beta1, beta2) = (self.q(), self.p("beta1"), self.p("beta2"));
        let epsilon = self.p("epsilon");
        *m = beta1 * *m + (1.0 - beta1) * q;
        let surprise = q - *m;
        *v = beta2 * *v + (1.0 - beta2) * surprise * surprise + epsilon;
        let step = *m / self.bias(beta1) / ((*v / self.bias(beta2)).sqrt() + epsilon);
        (1.0 - self.lr * self.wd) * w - self.lr * step
    }
}
