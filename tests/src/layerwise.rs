//! The formulas of layer-wise and row-wise optimizers: the numbers whose norms they need, and their
//! steps with these norms.

use crate::approximate::Approximate;
use crate::optimizer::{NaiveStep, State};

impl NaiveStep<'_> {
    /// Returns the two numbers of the element whose norms the step needs, or `None` for other
    /// optimizers.
    pub(crate) fn measured(&self, w: Approximate, s: &State) -> Option<[Approximate; 2]> {
        match self.h.name {
            "lars" => Some([w, self.p("rescale_grad") * self.g]),
            "lamb" => Some([w, self.lamb_direction(w, &mut s.clone())]),
            "groupadagrad" => Some([self.q(), self.exact(1.0)]),
            _ => None,
        }
    }

    fn norms(&self) -> [Approximate; 2] {
        self.norms.expect("the norms of the key")
    }

    pub(crate) fn lars(&self, w: Approximate, s: &mut State) -> Approximate {
        let [weight, gradient] = self.norms();
        let last_rate = s.last_rate.replace(self.lr);
        let rate = if weight.value > 0.0 && gradient.value > 0.0 {
            let divisor = gradient + self.wd * weight + self.exact(self.p("epsilon"));
            self.lr * (self.p("eta") * weight / divisor)
        } else {
            self.exact(self.lr)
        };
        let slope = rate * (self.q() + self.wd * w);
        let mut momentum = self.p("momentum");
        if momentum == 0.0 {
            return w - slope;
        }
        // The momentum contains the last learning rate, so it is scaled to the current one.
        if let Some(last) = last_rate
            && self.is("momentum_correction")
            && last > 0.0
        {
            momentum *= self.lr / last;
        }
        s.a = momentum * s.a - slope;
        w + s.a
    }

    pub(crate) fn lamb(&self, w: Approximate, s: &mut State) -> Approximate {
        let [mut weight, direction] = self.norms();
        let (low, high) = (self.p("lower_bound"), self.p("upper_bound"));
        if weight.value < low {
            weight = self.exact(low);
        }
        if high > 0.0 && weight.value > high {
            weight = self.exact(high);
        }
        let u = self.lamb_direction(w, s);
        if weight.value == 0.0 || direction.value == 0.0 {
            return w - self.lr * u;
        }
        w - self.lr * (weight / direction) * u
    }

    /// The norms are over the row: of its gradient, and of a vector of ones of the same length.
    pub(crate) fn groupadagrad(&self, w: Approximate, s: &mut State) -> Approximate {
        let [gradient, ones] = self.norms();
        s.a = s.a + gradient * gradient / (ones * ones);
        let slope = self.q() / (s.a + self.p("epsilon")).sqrt() + self.wd * w;
        w - self.lr * slope
    }

    #[expect(clippy::many_single_char_names, reason = "the letters of the formula")]
    fn lamb_direction(&self, w: Approximate, s: &mut State) -> Approximate {
        let (q, beta1, beta2) = (self.q(), self.p("beta1"), self.p("beta2"));
        s.a = beta1 * s.a + (1.0 - beta1) * q;
        s.b = beta2 * s.b + (1.0 - beta2) * q * q;
        let (mut m, mut v) = (s.a, s.b);
        if self.is("bias_correction") {
            (m, v) = (m / self.bias(beta1), v / self.bias(beta2));
        }
        m / (v.sqrt() + self.p("epsilon")) + self.wd * w
    }

    fn exact(&self, value: f64) -> Approximate {
        Approximate::exact(value, self.g.unit())
    }
}
