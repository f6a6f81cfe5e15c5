//! Every number that somebody chose, in one place.

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
    /// What the first interval at a new point counts, for it begins with what the last point left behind.
    first_share = 0.8;
    /// Where there is nothing to explore, so many intervals pass at most until the choice is reviewed.
    rest_max = 16.0;
    /// What each row of a given table counts, in observations: it was measured on another day, of a machine that
    /// was some percent faster or slower. With four it took too long to see that a row was wrong, and a table
    /// earned less than none (`examples/compare`).
    table_weight = 1.0;
    /// What another point must earn more, as a share, to be worth leaving a known one.
    hysteresis = 0.002;
    /// Observations after which a point is known well, and those that a model may lack while it is at one.
    well_known = 8.0;
    /// See above.
    refit_every = 8.0;
    /// Below this deviation of logarithms a prediction is as good as certain.
    certain = 1e-3;
    /// So many measurements, of which few count whole, may have been unlucky.
    few = 3.0;
    /// Rounds after which the search for a profit grows no rarer: twenty are a day apart. None is no search.
    search_rounds = 20.0;
    /// Weight of what was measured at a point to be a home.
    proven = 0.9;
    /// How many times what it costs a trial must be worth that is expected to make a loss.
    caution = 3.0;
    /// What going to another point and back disturbs, as a share of an interval's profit.
    disturbance = 0.2;
    /// Share of an unexplained error that is taken for the level's.
    level_gain = 0.85;
    /// Deviation of the level from one interval to the next: that of a hiccup.
    level_deviation = 0.1;
    /// Intervals over which the level of late is averaged.
    level_memory = 80.0;
    /// Intervals that it counts before any has passed, lest it begin with a hiccup.
    level_prior = 10.0;
    /// Surprise up to which a measurement may belong to a load that was met before.
    familiar = 4.0;
    /// For how many intervals a load lasts, as long as nothing is known of it.
    life = 500.0;
    /// A load is not taken for shorter than this, or nothing would ever be learned.
    life_min = 25.0;
    /// What lasted no longer than this was on its way to another.
    transition = 25.0;
    /// For so many intervals a trial is of use: in the square of the inverse of [`super::tally`]'s drift a point
    /// moves by as much as noise.
    useful = 1000.0;
    /// How many deviations an interval may be from what was foretold, to compare others with it.
    calm = 3.0;
    /// How many deviations of an error a point learns from.
    credible = 2.0;
    /// Standard deviation of the Matern term, in logarithms: how far a response strays from its trend.
    amplitude = 0.3;
    /// Variance of the level in units of the amplitude's square: large, for nothing is known about it.
    offset_variance = 100.0;
    /// Variance of the slope in the same units: half a unit either way is one deviation.
    slope_variance = 4.0;
    /// Variance of what was measured once, in the same units: it may have been a hiccup.
    surface_doubt = 0.2;
    /// The share of a measured latency that working points cannot have added.
    base_share = 0.3;
    /// Deviation that is granted from the start, and what it counts in intervals.
    signature_deviation = 0.06;
    /// See above.
    signature_guess = 5.0;
    /// The least that is believed: loads so much alike need not be told apart.
    signature_deviation_min = 0.05;
    /// Intervals over which it is averaged.
    signature_memory = 60.0;
    /// How many times its own variance one error may count.
    signature_clip = 9.0;
    /// Distance over which deviations from the trend are alike, in the units of [`WorkingPoints::distance`].
    length = 9.0;
    /// Beyond this a point's past counts for no more, so that its mean follows a slow drift.
    weight_max = 60.0;
    /// A point remembered less than this says nothing.
    weight_min = 0.05;
    /// What a point's mean may have moved, against those of others, since it was measured: as a random walk whose
    /// step in an interval is this share of the noise. What a server does changes with what it does.
    drift = 0.03;
    /// Share of the surprise at a first measurement that may have been a hiccup.
    doubt = 0.45;
    /// What is added to a weight before doubt falls with its cube.
    doubt_weight = 0.2;
    /// Deviation of what a point does under a load of which only another point was measured, from what it did
    /// under the last load, scaled; and by how much this grows with the distance of the loads.
    transfer_deviation = 0.15;
    /// See above.
    transfer_slope = 0.4;
    /// Loads farther from each other than this compare points differently.
    transfer_distance = 0.7;
    /// What it counts, in observations.
    transfer_weight = 0.5;
    /// Deviation of the measured logarithms before any is known, and the least that is believed.
    noise = 0.05;
    /// See above.
    noise_min = 0.005;
    /// Intervals over which noise is averaged, and how many the first guess counts.
    noise_memory = 60.0;
    /// See above.
    noise_guess = 5.0;
    /// No error counts as more than so many times what most are within.
    spread_max = 6.0;
    /// The most that errors are believed to persist.
    persistence_max = 0.85;
    /// By how much one error moves it, as a share of the variance.
    noise_step = 2.0;
    /// The surprise above which the sum grows; under an unchanged load the mean surprise is 1.
    allowance = 3.0;
    /// The most that one interval counts, so that a single outlier is no change.
    surprise_max = 15.0;
    /// The same where a load that was met before explains it.
    surprise_known_max = 48.0;
    /// The least that a point moves against others in an interval, in logarithms.
    drift_min = 0.0;
    /// The sum that is suspicious, and the one that is a change: at least four intervals.
    suspicion = 5.0;
    /// See above.
    alarm = 45.0;
}
