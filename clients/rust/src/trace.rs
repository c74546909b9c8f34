//! Trace contexts, OpenTelemetry's with the feature `opentelemetry`, and the log of failed handlers.

/// Logs that a function of the program failed. A program without a subscriber of `tracing` gets a line on stderr, because
/// nothing else would tell it: neither the model nor the server reads the text.
pub(crate) fn handler_failed(session_id: &str, callback_id: &str, handler: &str, error: &str) {
    if tracing::dispatcher::has_been_set() {
        tracing::warn!(session_id, callback_id, handler, error, "handler failed");
    } else {
        let error = error.replace('\n', " ");
        eprintln!(
            "warning: copilot-grpc: {handler} failed: {error} (session {session_id:?}, callback {callback_id:?})"
        );
    }
}

/// The traceparent and tracestate of the current span; empty without one.
#[cfg(feature = "opentelemetry")]
pub(crate) fn current() -> (String, String) {
    use opentelemetry::trace::TraceContextExt;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    let context = tracing::Span::current().context();
    let span = context.span();
    let span = span.span_context();
    if !span.is_valid() {
        return Default::default();
    }
    let flags = span.trace_flags().to_u8();
    (format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id()), span.trace_state().header())
}

#[cfg(not(feature = "opentelemetry"))]
pub(crate) fn current() -> (String, String) {
    Default::default()
}

/// The span of a callback's handler, in the callback's trace.
#[cfg(feature = "opentelemetry")]
pub(crate) fn span(session_id: &str, callback_id: &str, traceparent: &str, tracestate: &str) -> tracing::Span {
    use opentelemetry::trace::TraceContextExt;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    let span = tracing::info_span!("callback", session_id, callback_id);
    if let Some(parent) = parse(traceparent, tracestate) {
        let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(parent));
    }
    span
}

#[cfg(not(feature = "opentelemetry"))]
pub(crate) fn span(session_id: &str, callback_id: &str, _: &str, _: &str) -> tracing::Span {
    tracing::info_span!("callback", session_id, callback_id)
}

/// Reads a W3C trace context of version 00.
#[cfg(feature = "opentelemetry")]
fn parse(traceparent: &str, tracestate: &str) -> Option<opentelemetry::trace::SpanContext> {
    use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

    let parts: Vec<_> = traceparent.split('-').collect();
    let ["00", trace, span, flags] = parts[..] else { return None };
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    let state: TraceState = tracestate.parse().unwrap_or_default();
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    Some(SpanContext::new(trace, span, flags, true, state)).filter(SpanContext::is_valid)
}
