//! What the operator decides about registrations.

/// What the operator decides.
#[derive(Clone, Debug)]
pub struct RegistrarConfig {
    /// Seconds a binding lasts when the request names no time.
    pub default_expires: u32,
    /// Fewest seconds a binding may last; a shorter one is answered 423.
    pub min_expires: u32,
    /// Most seconds a binding lasts, whatever is asked for.
    pub max_expires: u32,
    /// Most contacts one address-of-record may have; one more is answered 403.
    pub max_contacts: usize,
    /// The value of Service-Route in answers, elements with their angle brackets and `;lr`; empty for
    /// none (RFC 3608).
    pub service_route: Vec<u8>,
    /// Seconds for Flow-Timer in answers to direct outbound registrations (RFC 5626 section 6).
    pub flow_timer: Option<u32>,
}

impl Default for RegistrarConfig {
    fn default() -> Self {
        RegistrarConfig {
            default_expires: 3600,
            min_expires: 60,
            max_expires: 7200,
            max_contacts: 10,
            service_route: Vec::new(),
            flow_timer: None,
        }
    }
}
