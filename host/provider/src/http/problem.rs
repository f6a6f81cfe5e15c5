//! Refusals as problem bodies, and the extractors that make them.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use nom_proto::problem::Problem;
use serde::de::DeserializeOwned;

/// After how many seconds somebody may hope for a place.
const CROWDED_SECONDS: u64 = 5;

/// A request that is refused.
#[derive(Debug)]
pub struct Refusal {
    /// In a box: it stands in every result.
    problem: Box<Problem>,
    /// One more header, if the kind of refusal has one.
    header: Option<(header::HeaderName, HeaderValue)>,
}

impl Refusal {
    /// One about the request as a whole.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Refusal {
        let problem = Problem {
            title: status.canonical_reason().unwrap_or("Refused").to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            field: None,
            expected: None,
        };
        Refusal { problem: Box::new(problem), header: None }
    }

    /// One of somebody who is not known.
    pub fn unauthorized(detail: &str) -> Refusal {
        let refusal = Refusal::new(StatusCode::UNAUTHORIZED, detail).about("Authorization", "Bearer KEY");
        Refusal { header: Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))), ..refusal }
    }

    /// One of somebody who may ask again after so many `seconds`.
    pub fn too_often(seconds: u64, per_second: u32) -> Refusal {
        let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "that is too many requests");
        let refusal = refusal.about("the rate of requests", format!("at most {per_second} a second"));
        Refusal { header: Some((header::RETRY_AFTER, seconds.into())), ..refusal }
    }

    /// One of somebody at an address that has its share of connections.
    pub fn crowded() -> Refusal {
        let detail = "there are too many connections from this address, or all together";
        let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, detail);
        let refusal = refusal.about("the number of connections", "as many as are left free for others");
        Refusal { header: Some((header::RETRY_AFTER, CROWDED_SECONDS.into())), ..refusal }
    }

    /// One for which the provider is to blame.
    pub fn broken(error: impl std::fmt::Display) -> Refusal {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }

    /// One about a field of it whose value cannot be processed.
    pub fn field(
        field: impl Into<String>,
        detail: impl Into<String>,
        expected: impl Into<String>,
    ) -> Refusal {
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, detail).about(field, expected)
    }

    /// The same, about a field.
    pub fn about(mut self, field: impl Into<String>, expected: impl Into<String>) -> Refusal {
        self.problem.field = Some(field.into());
        self.problem.expected = Some(expected.into());
        self
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let kind = [(header::CONTENT_TYPE, Problem::MEDIA_TYPE)];
        let mut response = (status, kind, Json(self.problem)).into_response();
        response.headers_mut().extend(self.header);
        response
    }
}

/// A body of JSON.
///
/// It must say that it is JSON: a web page of somebody else can then not send one without being asked first
/// (Fetch standard, CORS-safelisted request headers).
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        if !is_json(request.headers()) {
            let refusal =
                Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body does not say what it is");
            return Err(refusal.about("Content-Type", "application/json"));
        }
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| Refusal::new(rejection.status(), rejection.body_text()))?;
        parse(&bytes).map(Body)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = error.path().to_string();
        Refusal::field(field, format!("{error}"), "a value of the documented type")
    })?;
    json.end().map_err(|error| Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))?;
    Ok(value)
}

/// Parameters of a URL.
#[derive(Debug)]
pub struct Parameters<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        let refusal = |error: axum::extract::rejection::QueryRejection| {
            Refusal::new(StatusCode::BAD_REQUEST, error.body_text())
                .about("parameters", "those of the documentation")
        };
        query.map(|Query(parameters)| Parameters(parameters)).map_err(refusal)
    }
}
