//! The counters of protocol machines.

use crate::status::Status;

base::counts! {
    /// Totals over all connections that shared this value. They only grow.
    pub struct Counts {
        /// Requests handed to the service.
        requests,
        /// Responses with a 2xx status, from the service or the machine.
        responses_2xx,
        /// Responses with a 3xx status.
        responses_3xx,
        /// Responses with a 4xx status, refusals included.
        responses_4xx,
        /// Responses with a 5xx status, refusals included.
        responses_5xx,
        /// Interim responses: 100 (Continue).
        responses_100_continue,
        /// Bytes received, of any kind.
        received_bytes,
        /// Bytes that the transport took.
        sent_bytes,
        /// Bytes of content in the responses begun; 0 for HEAD.
        body_bytes,
        /// Requests refused with 400.
        refused_bad_request,
        /// Requests refused with 413: content above its limit.
        refused_content_too_large,
        /// Requests refused with 414: target above its limit.
        refused_target_too_long,
        /// Requests refused with 417: an expectation other than 100-continue.
        refused_expectation,
        /// Requests refused with 431: head above its limit, or too many fields.
        refused_head_too_large,
        /// Requests refused with 501: CONNECT, or a transfer coding that this server does not decode.
        refused_not_implemented,
        /// Requests refused with 505: not HTTP/1.
        refused_version,
        /// Heads that exceeded their timeout, and new connections that sent none.
        timeouts_header,
        /// Persistent connections closed because no request came in time.
        timeouts_idle,
        /// Request bodies that exceeded their timeout.
        timeouts_body,
        /// Connections closed, and HTTP/2 streams reset, because the peer took less than 1 KiB of a response in time.
        timeouts_write_stall,
        /// Lingering closes that reached their timeout before the peer's end.
        timeouts_linger,
        /// Responses cut short because the file ended before its range.
        truncated,
        /// Connections that ended within a request.
        incomplete_requests,
        /// Connections that ended before everything queued had been sent.
        incomplete_responses,
        /// Connections closed because they had served their number of requests.
        limit_requests_per_connection,
        /// Times that pipelined requests had to wait for earlier ones.
        limit_pipelined,
    }
}

impl Counts {
    /// Responses of any status.
    pub fn responses(&self) -> u64 {
        self.responses_2xx + self.responses_3xx + self.responses_4xx + self.responses_5xx
    }

    /// Counts a response that begins.
    #[inline]
    pub fn response(&mut self, status: Status) {
        match status.0 {
            200..=299 => self.responses_2xx += 1,
            300..=399 => self.responses_3xx += 1,
            400..=499 => self.responses_4xx += 1,
            _ => self.responses_5xx += 1,
        }
    }

    /// Counts a request refused by the protocol machine.
    pub fn refusal(&mut self, status: Status) {
        match status {
            Status::CONTENT_TOO_LARGE => self.refused_content_too_large += 1,
            Status::URI_TOO_LONG => self.refused_target_too_long += 1,
            Status::EXPECTATION_FAILED => self.refused_expectation += 1,
            Status::HEAD_TOO_LARGE => self.refused_head_too_large += 1,
            Status::NOT_IMPLEMENTED => self.refused_not_implemented += 1,
            Status::VERSION_NOT_SUPPORTED => self.refused_version += 1,
            // Counted as a timeout of its kind, and as a client's limit.
            Status::REQUEST_TIMEOUT | Status::TOO_MANY_REQUESTS => {}
            _ => self.refused_bad_request += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_counted_by_their_class() {
        let mut counts = Counts::default();
        for code in [200, 299, 206, 300, 399, 400, 499, 500, 505, 507, 599] {
            counts.response(Status(code));
        }
        let Counts { responses_2xx, responses_3xx, responses_4xx, responses_5xx, .. } = counts;
        assert_eq!([responses_2xx, responses_3xx, responses_4xx, responses_5xx], [3, 2, 2, 4]);
        assert_eq!(counts.responses(), 11);
    }

    #[test]
    fn each_refusal_has_its_own_counter() {
        type Counter = fn(&Counts) -> u64;
        let of: [(Status, Counter); 7] = [
            (Status::BAD_REQUEST, |counts| counts.refused_bad_request),
            (Status::CONTENT_TOO_LARGE, |counts| counts.refused_content_too_large),
            (Status::URI_TOO_LONG, |counts| counts.refused_target_too_long),
            (Status::EXPECTATION_FAILED, |counts| counts.refused_expectation),
            (Status::HEAD_TOO_LARGE, |counts| counts.refused_head_too_large),
            (Status::NOT_IMPLEMENTED, |counts| counts.refused_not_implemented),
            (Status::VERSION_NOT_SUPPORTED, |counts| counts.refused_version),
        ];
        for (status, _) in of {
            let mut counts = Counts::default();
            counts.refusal(status);
            let counted: Vec<Status> =
                of.iter().filter(|(_, count)| count(&counts) > 0).map(|(status, _)| *status).collect();
            assert_eq!(counted, [status]);
        }
        for status in [Status::REQUEST_TIMEOUT, Status::TOO_MANY_REQUESTS] {
            let mut counts = Counts::default();
            counts.refusal(status);
            assert!(of.iter().all(|(_, count)| count(&counts) == 0), "{status:?} is counted elsewhere");
        }
    }
}
