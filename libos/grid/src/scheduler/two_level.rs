//! Schedulers under a scheduler: as at the CPU, where each resource's scheduler is a client.

use super::{
    Availability, BadClient, ClientIndex, ClientParameters, ClientStatistics, QueueHead, ResourceScheduler,
};
use crate::record::ResourceRecord;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A scheduler between groups, and one in each of them between its clients. The groups are the upper one's
/// clients, by their places; a client says by its parameters to which it belongs.
#[derive(Debug)]
pub struct TwoLevel {
    upper: Box<dyn ResourceScheduler>,
    groups: Vec<Box<dyn ResourceScheduler>>,
    /// By client.
    group_of: Vec<Option<usize>>,
    /// Groups that the upper one takes for ready.
    is_ready: Vec<bool>,
}

impl TwoLevel {
    /// `upper` above `groups`, each with what `upper` is told of it.
    ///
    /// # Errors
    /// [`BadClient`], if `upper` cannot serve one of them.
    pub fn new(
        mut upper: Box<dyn ResourceScheduler>,
        groups: Vec<(ClientParameters, Box<dyn ResourceScheduler>)>,
    ) -> Result<TwoLevel, BadClient> {
        for (index, (parameters, _)) in groups.iter().enumerate() {
            upper.add_client(index, parameters)?;
        }
        let is_ready = groups.iter().map(|_| false).collect();
        let groups = groups.into_iter().map(|(_, group)| group).collect();
        Ok(TwoLevel { upper, groups, group_of: Vec::new(), is_ready })
    }

    /// Treats a whole group otherwise from now on.
    ///
    /// # Errors
    /// [`BadClient`]; it is treated as before.
    pub fn update_group(
        &mut self,
        group: usize,
        parameters: &ClientParameters,
        now_ns: u64,
    ) -> Result<(), BadClient> {
        let count = self.groups.len();
        self.groups.get(group).ok_or(BadClient::Group(group, count))?;
        self.upper.update_client(group, parameters, now_ns)
    }

    fn group_of(&self, client: ClientIndex) -> Option<usize> {
        self.group_of.get(client).copied().flatten()
    }

    fn group(&mut self, client: ClientIndex) -> Option<&mut Box<dyn ResourceScheduler>> {
        let group = self.group_of(client)?;
        self.groups.get_mut(group)
    }

    /// Tells the upper scheduler which groups are ready: those that would serve somebody now.
    fn announce(&mut self, now_ns: u64) {
        for (index, group) in self.groups.iter_mut().enumerate() {
            let can_serve = group.poll_ready(now_ns) == Availability::Now;
            if core::mem::replace(&mut self.is_ready[index], can_serve) == can_serve {
                continue;
            }
            if can_serve {
                self.upper.client_ready(index, QueueHead { arrived_ns: now_ns }, now_ns);
            } else {
                self.upper.client_suspended(index);
            }
        }
    }
}

impl ResourceScheduler for TwoLevel {
    fn add_client(&mut self, client: ClientIndex, parameters: &ClientParameters) -> Result<(), BadClient> {
        let count = self.groups.len();
        let group = self.groups.get_mut(parameters.group);
        group.ok_or(BadClient::Group(parameters.group, count))?.add_client(client, parameters)?;
        if self.group_of.len() <= client {
            self.group_of.resize(client + 1, None);
        }
        self.group_of[client] = Some(parameters.group);
        Ok(())
    }

    /// A client stays in its group.
    fn update_client(
        &mut self,
        client: ClientIndex,
        parameters: &ClientParameters,
        now_ns: u64,
    ) -> Result<(), BadClient> {
        self.group(client).map_or(Ok(()), |group| group.update_client(client, parameters, now_ns))
    }

    fn remove_client(&mut self, client: ClientIndex) {
        if let Some(group) = self.group(client) {
            group.remove_client(client);
            self.group_of[client] = None;
        }
    }

    fn schedule(&mut self, now_ns: u64) -> Option<ClientIndex> {
        self.announce(now_ns);
        let group = self.upper.schedule(now_ns)?;
        self.is_ready[group] = false;
        self.groups[group].schedule(now_ns)
    }

    fn client_ready(&mut self, client: ClientIndex, head: QueueHead, now_ns: u64) {
        if let Some(group) = self.group(client) {
            group.client_ready(client, head, now_ns);
        }
    }

    fn client_suspended(&mut self, client: ClientIndex) {
        if let Some(group) = self.group(client) {
            group.client_suspended(client);
        }
    }

    fn client_rejected(&mut self, client: ClientIndex) {
        if let Some(group) = self.group_of(client) {
            self.groups[group].client_rejected(client);
            self.upper.client_rejected(group);
        }
    }

    fn poll_ready(&mut self, now_ns: u64) -> Availability {
        self.announce(now_ns);
        let soonest = self.groups.iter_mut().filter_map(|group| match group.poll_ready(now_ns) {
            Availability::After(ns) => Some(ns),
            Availability::Now | Availability::Never => None,
        });
        match (self.upper.poll_ready(now_ns), soonest.min()) {
            (Availability::Never, Some(ns)) => Availability::After(ns),
            (Availability::After(upper), Some(ns)) => Availability::After(upper.min(ns)),
            (upper, _) => upper,
        }
    }

    fn resource_record(&mut self, client: ClientIndex, record: &ResourceRecord, now_ns: u64) {
        if let Some(group) = self.group_of(client) {
            self.groups[group].resource_record(client, record, now_ns);
            self.upper.resource_record(group, record, now_ns);
        }
    }

    fn client_statistics(&self, client: ClientIndex) -> ClientStatistics {
        let group = self.group_of(client).and_then(|group| self.groups.get(group));
        group.map_or_else(Default::default, |group| group.client_statistics(client))
    }

    fn may_be_bypassed(&self) -> bool {
        self.upper.may_be_bypassed() && self.groups.iter().all(|group| group.may_be_bypassed())
    }
}
