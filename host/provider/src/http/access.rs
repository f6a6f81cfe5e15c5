//! Who asks, and what he may.

use super::Shared;
use super::problem::Refusal;
use crate::accounts::Identity;
use crate::clock::Moment;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use nom_proto::account::Role;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The name that the operator's token stands for.
const TOKENS_OWNER: &str = "token";

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// Somebody whose key was looked at already.
#[derive(Clone, Debug)]
struct Known(Identity);

/// Lets pass who names this provider as it is named, asks not too often, and has a good key if any. What he
/// may do is decided where he does it.
pub async fn guard(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    let outcome = admit(&shared, &mut request);
    match outcome {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

fn admit(shared: &Shared, request: &mut Request) -> Result<(), Refusal> {
    let named = request.uri().authority().map(|authority| authority.as_str());
    let host = request.headers().get(header::HOST).map(|host| host.to_str().unwrap_or("?"));
    if let Some(host) = named.or(host).filter(|host| !shared.hosts.has(host)) {
        let detail = format!("this provider is not called `{host}`");
        return Err(
            Refusal::new(StatusCode::MISDIRECTED_REQUEST, detail).about("Host", shared.hosts.expected())
        );
    }
    let peer = request.extensions().get::<Peer>().map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0);
    let identity = identify(shared, request.headers());
    // Wrong keys count for the address that they come from.
    let waits = match &identity {
        Ok(Some(identity)) if identity.role == Role::Operator => None,
        Ok(Some(identity)) => shared.rates.account(identity),
        Ok(None) | Err(_) => shared.rates.address(peer),
    };
    if let Some(seconds) = waits {
        return Err(Refusal::too_often(seconds, shared.rates.per_second()));
    }
    if let Some(identity) = identity? {
        request.extensions_mut().insert(Known(identity));
    }
    Ok(())
}

/// Whose key the request has.
fn identify(shared: &Shared, headers: &HeaderMap) -> Result<Option<Identity>, Refusal> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let word = value.to_str().ok().and_then(|value| value.strip_prefix("Bearer "));
    let word = word.ok_or_else(|| Refusal::unauthorized("this is no key"))?;
    if shared.token.is(word) {
        return Ok(Some(Identity { role: Role::Operator, name: TOKENS_OWNER.to_owned() }));
    }
    let identity = shared.accounts.authenticate(word, Moment::now().unix_ns).map_err(Refusal::broken)?;
    identity.map(Some).ok_or_else(|| Refusal::unauthorized("nobody has this key, or it has ended"))
}

/// Somebody with a good key.
#[derive(Clone, Debug)]
pub struct Caller(pub Identity);

/// What of machines' reports and records somebody may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// All.
    All,
    /// Of the machines that this tenant pays for.
    Tenant(String),
    /// Of this machine.
    Machine(String),
}

impl Caller {
    /// What he may read.
    pub fn sight(&self) -> Sight {
        let name = self.0.name.clone();
        match self.0.role {
            Role::Operator | Role::Auditor => Sight::All,
            Role::Tenant => Sight::Tenant(name),
            Role::Machine | Role::Meter => Sight::Machine(name),
        }
    }

    /// Whose bills he may read: everybody's (none), or a tenant's.
    ///
    /// # Errors
    /// If nobody's.
    pub fn bills(&self) -> Result<Option<&str>, Refusal> {
        match self.0.role {
            Role::Operator | Role::Auditor => Ok(None),
            Role::Tenant => Ok(Some(&self.0.name)),
            Role::Machine | Role::Meter => {
                Err(self.refused("read bills", "a key of an operator, an auditor or a tenant"))
            }
        }
    }

    /// Lets an operator pass.
    ///
    /// # Errors
    /// If he is none.
    pub fn operates(&self) -> Result<(), Refusal> {
        match self.0.role {
            Role::Operator => Ok(()),
            _ => Err(self.refused("do that", "an operator's key")),
        }
    }

    /// Lets pass who may speak for `machine` in `role`: the machine's own account, or an operator.
    ///
    /// # Errors
    /// If he is neither.
    pub fn speaks(&self, role: Role, machine: &str) -> Result<(), Refusal> {
        let Identity { role: own, name } = &self.0;
        if *own == Role::Operator || (*own == role && name == machine) {
            return Ok(());
        }
        let what = match role {
            Role::Machine => "report for",
            _ => "meter",
        };
        let what = format!("{what} machine `{machine}`");
        Err(self.refused(&what, &format!("the key of role `{}` of that machine", role.name())))
    }

    fn refused(&self, what: &str, expected: &str) -> Refusal {
        let Identity { role, name } = &self.0;
        let detail = format!("{} `{name}` may not {what}", role.name());
        Refusal::new(StatusCode::FORBIDDEN, detail).about("Authorization", expected)
    }
}

impl Sight {
    /// Whether it comprises a machine.
    pub fn has(&self, machine: &str, shared: &Shared) -> bool {
        match self {
            Sight::All => true,
            Sight::Machine(own) => own == machine,
            Sight::Tenant(tenant) => {
                // A database that fails shows nothing.
                shared.accounts.tenant_of(machine).is_ok_and(|payer| payer.as_ref() == Some(tenant))
            }
        }
    }
}

impl FromRequestParts<Arc<Shared>> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Shared>) -> Result<Self, Refusal> {
        let known = parts.extensions.get::<Known>();
        known.map(|known| Caller(known.0.clone())).ok_or_else(|| Refusal::unauthorized("this needs a key"))
    }
}

/// An operator.
#[derive(Debug)]
pub struct Operator;

impl FromRequestParts<Arc<Shared>> for Operator {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Refusal> {
        Caller::from_request_parts(parts, shared).await?.operates().map(|()| Operator)
    }
}
