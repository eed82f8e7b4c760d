//! Short numbers on the control socket: show, reclaim, retire.

use super::context::{Shared, error};
use crate::numbers::orders::Order;
use axum::Json;
use axum::extract::{State, rejection::JsonRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

/// Has the thread of short numbers do what is asked; the answer is what there is afterwards.
pub(super) async fn order(
    State(context): Shared,
    body: Result<Json<Order>, JsonRejection>,
) -> Response {
    let order = match body {
        Ok(Json(order)) => order,
        Err(e) => return error(StatusCode::BAD_REQUEST, &e.body_text()),
    };
    let Some(numbers) = context.monitor.store.numbers() else {
        return error(StatusCode::NOT_FOUND, "this server has no short numbers");
    };
    let Some(answer) = numbers.order(order) else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "too many orders wait");
    };
    match answer.await {
        Ok(Ok(view)) => Json(view).into_response(),
        Ok(Err(refused)) => error(StatusCode::CONFLICT, &refused),
        Err(_) => error(StatusCode::SERVICE_UNAVAILABLE, "the server ends"),
    }
}
