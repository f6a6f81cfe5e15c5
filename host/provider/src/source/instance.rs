//! Prices of whole instances, taken apart into cores and memory.

use super::Quote;
use super::convert::per_second;
use super::spec::{BadSource, Spec};
use nom_proto::prices::Resource;

/// What an instance has, and how its price is shared out: a price list names only the sum.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    cores: f64,
    /// GiB of memory, and the share of the price that is for cores.
    memory: Option<(f64, f64)>,
}

impl Instance {
    /// Options `cores`, and both or none of `memory_gib` and `core_share`.
    ///
    /// # Errors
    /// If they are absent or no such numbers.
    pub fn new(spec: &mut Spec) -> Result<Instance, BadSource> {
        let cores = spec.required_number("cores", "the number of cores of the instance")?;
        let memory = spec.number("memory_gib")?;
        let share = spec.number("core_share")?;
        let memory = match (memory, share) {
            (None, None) => None,
            (Some(memory), Some(share)) if share < 1.0 => Some((memory, share)),
            (_, share) => {
                let found = share.map(|share| share.to_string()).unwrap_or_default();
                let expected = "a share below 1 of the price, together with option `memory_gib`";
                return Err(spec.bad("option `core_share`", &found, expected));
            }
        };
        Ok(Instance { cores, memory })
    }

    /// What it has a price of.
    pub fn resources(&self) -> Vec<Resource> {
        match self.memory {
            None => vec![Resource::Core],
            Some(_) => vec![Resource::Core, Resource::Memory],
        }
    }

    /// Prices of its parts, from dollars for an hour of the whole.
    pub fn quotes(&self, per_hour: f64, field: &str) -> Vec<Quote> {
        let whole = per_second(per_hour);
        match self.memory {
            None => vec![Quote::fresh(Resource::Core, whole / self.cores, field)],
            Some((gib, share)) => vec![
                Quote::fresh(Resource::Core, whole * share / self.cores, field),
                Quote::fresh(Resource::Memory, whole * (1.0 - share) / gib, field),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(options: &str) -> Result<Instance, BadSource> {
        Instance::new(&mut Spec::parse(&format!("azure:x,{options}")).expect("of the shape"))
    }

    #[test]
    fn the_parts_cost_what_the_whole_does() {
        let parts = instance("cores=4,memory_gib=16,core_share=0.6").expect("good").quotes(0.36, "price");
        let [core, memory] = &parts[..] else { panic!("{parts:?}") };
        assert!((core.dollars - 0.000_015).abs() < 1e-18, "{}", core.dollars);
        assert!((core.dollars * 4.0 + memory.dollars * 16.0 - 0.0001).abs() < 1e-18);
        assert_eq!(instance("cores=2").expect("good").quotes(7.2, "price")[0].dollars, 0.001);
    }

    #[test]
    fn half_a_description_is_refused() {
        for options in [
            "memory_gib=16",
            "cores=4,memory_gib=16",
            "cores=4,core_share=0.5",
            "cores=0",
            "cores=4,memory_gib=1,core_share=1.5",
        ] {
            assert!(instance(options).is_err(), "{options}");
        }
    }
}
