//! From a hold on the server to the guard of its caller: renewal, token, and a clean end.

use std::sync::Arc;

use tokio::time::Instant;

use super::Locks;
use crate::guard::{Guard, HoldResources};
use crate::hold_state::HoldState;
use crate::local_queue_slot::LocalQueueSlot;
use crate::loss_report::LossReport;
use crate::process_quantum::QueueGuard;
use crate::{Hold, Lease, LockError, LockOptions, Request, Support, Validity, failpoint};

impl Locks {
    /// Makes the guard. Renewal starts before the caller sees success. A token counts only if it
    /// arrived within the validity time; a hold whose validity has ended is released.
    pub(super) async fn new_guard(
        &self,
        hold: Box<dyn Hold>,
        key_guard: Option<QueueGuard>,
        request: &Request,
        options: &LockOptions,
    ) -> Result<Guard, LockError> {
        let since = Instant::now();
        let until =
            options.max_hold.map_or(Validity::UNBOUNDED, |most| Validity::until(since + most));
        let hold_state = HoldState::new(hold.validity().earlier(until), &self.ticker);
        let registration = match options.lease {
            Lease::Renewed(_) => hold.renewal_target(),
            Lease::Fixed(_) => None,
        }
        .map(|renewal_target| {
            self.watchdog.register(renewal_target, Arc::clone(&hold_state), until)
        });
        let key_guard = key_guard.map(|key_guard| {
            LocalQueueSlot::new(key_guard, Arc::clone(&hold_state), &self.background)
        });
        let own_token = hold.token();
        let token_issuer = self.token_issuer.as_ref().filter(|_| own_token.is_none());
        let key = (request.name.clone(), request.owner.clone());
        let ownership = token_issuer.map(|(_, all)| all.join(key, Arc::clone(&hold_state)));
        let shared_token = ownership.as_ref().map(|ownership| ownership.token.clone());
        let deadlock_entry = self.deadlock_detector.as_ref();
        let deadlock_entry = deadlock_entry
            .map(|(detector, class)| detector.enter_hold(*class, request, &hold_state));
        let resources = HoldResources {
            hold,
            hold_state,
            registration,
            key_guard,
            ownership,
            idempotent: self.guarantees.idempotent == Support::Yes,
            has_renewable_lease: self.locker.has_renewable_lease(),
            metrics: self.metrics.clone(),
            since,
            span: None,
            _deadlock_entry: deadlock_entry,
            loss_report: Some(LossReport {
                reports: self.holder_reports.clone(),
                background: self.background.clone(),
                name: request.name.clone(),
                owner: request.owner.clone(),
                options: *options,
            }),
        };
        // From here on the guard cleans up after itself, also if this future is dropped.
        let (owner, background) = (request.owner.clone(), self.background.clone());
        let most = options.max_hold.is_some() && self.guarantees.frees_only_its_own();
        let guard = Guard::new(resources, owner, background, most.then_some(until))
            .with_name(self.locker.name(), &request.name);
        let guard = match token_issuer.zip(shared_token) {
            Some(((token_issuer, _), shared)) if options.fenced => {
                let token = shared.get(&**token_issuer, &request.name).await?;
                failpoint::reach(failpoint::TOKEN_ISSUED);
                guard.with_token(Some(token))
            }
            _ => guard.with_token(own_token),
        };
        if guard.is_lost() {
            return Err(LockError::lease_expired(options.lease.length()));
        }
        Ok(guard)
    }
}
