//! Every number that somebody chose, with its unit; docs/controller.md has source and ablation.

/// Declares the parameters: each with its documentation and its value.
macro_rules! parameters {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        /// The controller's parameters.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct Parameters {
            $($(#[$doc])* pub $name: f64,)*
        }

        impl Parameters {
            /// Those that controllers have, unless they are given others.
            pub const DEFAULT: Self = Self { $($name: $value,)* };

            /// Names of all, in order.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// The parameter of that name.
            pub fn named(&mut self, name: &str) -> Option<&mut f64> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)*
                    _ => None,
                }
            }
        }
    };
}

parameters! {
    // The response surface (surface.rs); deviations are of logarithms.
    /// How far a response strays from its trend: deviation of the Matérn term.
    amplitude = 0.3;
    /// Over how far strays are alike, in half octaves of the batching delay.
    length = 9.0;
    /// Variance of level, and of the slope along expected latency, in squares of `amplitude`: diffuse.
    trend_variance = 100.0;
    /// Variance of a point that was measured once, in the same squares: it may have been an outlier.
    surface_doubt = 0.2;

    // The point estimate (estimate.rs).
    /// Intervals over which means, noise, signature and level are averaged.
    memory = 60.0;
    /// Intervals that a first guess of a variance counts.
    guess = 5.0;
    /// What the first interval at a new point counts: it begins with what the last point left behind.
    first_share = 0.8;
    /// By how much a point moves against others in an interval, in deviations of noise: a random walk.
    drift = 0.03;
    /// Share of the innovation at a first measurement that may have been an outlier.
    doubt = 0.45;

    // The noise estimate (estimate.rs).
    /// Deviation of a measured logarithm before any is known.
    noise = 0.05;
    /// Deviations beyond which an error is an outlier; three, by custom.
    outlier = 3.0;
    /// Deviations of an error that a point learns from; the rest is the level's.
    credible = 2.0;

    // The common drift (drift.rs).
    /// Gain of the level on an innovation that nothing else explains.
    level_gain = 0.85;
    /// Deviation of the level from one interval to the next.
    level_deviation = 0.1;

    // The change detector (change.rs, signature.rs); surprises are squares of deviations.
    /// The surprise above which the sum grows; under an unchanged load the mean is 1.
    allowance = 3.0;
    /// The most that one interval counts; three times as much, at least four intervals, is a change.
    surprise_max = 15.0;
    /// The sum above which nothing is learned.
    suspicion = 5.0;
    /// For how many intervals a load lasts, as long as nothing is known of it.
    life = 500.0;

    // The acquisition rule (acquisition.rs, mod.rs).
    /// What another point must earn more to be worth leaving the incumbent, as a share.
    hysteresis = 0.002;
    /// What a trial disturbs, as a share of an interval's profit.
    disturbance = 0.2;
    /// How many times what it costs a trial outside of the safe set must be worth.
    caution = 3.0;
    /// Observations of a point below which several more are planned at once.
    few = 3.0;
    /// Observations of a point that make it an incumbent.
    proven = 0.9;
    /// Where there is nothing to explore, the most intervals until the choice is reviewed.
    rest_max = 16.0;
    /// Rounds after which the search for a profit grows no rarer: twenty are a day apart. None is no search.
    search_rounds = 20.0;
}
