use super::*;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000_000 + ms)
}

fn finding(ms: u64, arm: Arm, level: Level) -> Finding {
    Finding {
        at: at(ms),
        route: None,
        arm,
        level,
        reason: arm.as_str().to_owned(),
        statistic: 9.0,
        n: 3,
        limit: 1.0,
        arl0: None,
        onset: None,
        message: "9 over 1".to_owned(),
    }
}

fn calibrated() -> Health {
    let mut h = Health::default();
    assert_eq!(h.state(), HealthState::Unknown);
    let change = h.set_calibrated(at(0), true, true).expect("changes");
    assert_eq!((change.from, change.to), (HealthState::Unknown, HealthState::Healthy));
    h
}

#[test]
fn a_suspicion_asks_for_a_burst_and_a_sound_one_clears_a_rule() {
    let mut h = calibrated();
    assert_eq!(h.take_burst(at(1)), None);
    assert_eq!(h.on_finding(&finding(1, Arm::Rule, Level::Alert)), None, "an alert decides nothing");
    let change = h.on_finding(&finding(2, Arm::Rule, Level::Suspect)).expect("changes");
    assert_eq!((change.to, change.reason.as_str()), (HealthState::Suspect, "rule"));
    assert_eq!(h.reasons().count(), 1);
    assert_eq!(h.take_burst(at(2)), Some(BurstReason::Suspicion));
    assert_eq!(h.take_burst(at(3)), None, "asked once");
    assert_eq!(h.take_burst(at(3 + LOST_MS)), Some(BurstReason::Suspicion), "asked again when lost");
    let change = h.on_burst(at(9), Verdict::Sound, "30 of 30").expect("changes");
    assert_eq!((change.to, change.reason.as_str()), (HealthState::Healthy, "cleared"));
    assert_eq!(h.reasons().count(), 0);
    assert_eq!(h.take_burst(at(9 + LOST_MS)), None);
}

#[test]
fn canaries_that_raise_suspicion_again_after_a_sound_burst_mean_changed() {
    let mut h = calibrated();
    assert!(h.on_finding(&finding(1, Arm::A1, Level::Suspect)).is_some());
    let change = h.on_burst(at(2), Verdict::Sound, "30 of 30").expect("changes");
    assert_eq!((change.to, change.reason.as_str()), (HealthState::Healthy, "cleared"), "once is chance");
    assert!(h.on_finding(&finding(3, Arm::A3, Level::Suspect)).is_some());
    let change = h.on_burst(at(4), Verdict::Sound, "30 of 30").expect("changes");
    assert_eq!(change.to, HealthState::Changed);
    assert!(h.reasons().count() > 0);
    assert_eq!(h.take_burst(at(4 + CHANGED_MS - 1)), None);
    assert_eq!(h.take_burst(at(4 + CHANGED_MS)), Some(BurstReason::Changed), "hourly");
    assert_eq!(h.on_burst(at(5 + CHANGED_MS), Verdict::Sound, ""), None);
    // What has changed and moves on is suspect, and changed again when not worse.
    let later = 5 + 9 * CHANGED_MS;
    assert_eq!(
        h.on_finding(&finding(later, Arm::A1, Level::Suspect)).expect("changes").to,
        HealthState::Suspect
    );
    let change = h.on_burst(at(later + 1), Verdict::Sound, "").expect("changes");
    assert_eq!(change.to, HealthState::Changed);
    let change = h.set_calibrated(at(later + 2), true, true).expect("an operator re-baselines");
    assert_eq!(change.to, HealthState::Healthy);
}

#[test]
fn two_suspicions_far_apart_are_what_chance_allows() {
    let mut h = calibrated();
    for day in 0..3 {
        let ms = 1 + day * 86_400_000;
        assert!(h.on_finding(&finding(ms, Arm::A1, Level::Suspect)).is_some());
        let change = h.on_burst(at(ms + 1), Verdict::Sound, "30 of 30").expect("changes");
        assert_eq!(change.to, HealthState::Healthy, "day {day}");
    }
}

#[test]
fn a_lost_signal_is_a_change_at_once_and_its_return_ends_it() {
    let mut h = calibrated();
    assert!(h.on_finding(&finding(1, Arm::Coverage, Level::Suspect)).is_some());
    let change = h.on_burst(at(2), Verdict::Sound, "30 of 30").expect("changes");
    assert_eq!(change.to, HealthState::Changed);
    let change = h.on_signal_back(at(3), "back").expect("changes");
    assert_eq!((change.to, change.reason.as_str()), (HealthState::Healthy, "signal_back"));
    assert_eq!(h.on_signal_back(at(4), "back"), None);
    assert!(h.on_finding(&finding(5, Arm::Coverage, Level::Suspect)).is_some());
    assert_eq!(h.on_finding(&finding(6, Arm::A3, Level::Suspect)), None);
    assert_eq!(h.on_signal_back(at(7), "back"), None, "another arm has its say");
}

#[test]
fn live_answers_alone_are_cleared_by_a_sound_burst_or_a_changed_workload() {
    let mut h = calibrated();
    for ms in [1, 5] {
        assert!(h.on_finding(&finding(ms, Arm::C1, Level::Suspect)).is_some());
        let change = h.on_burst(at(ms + 1), Verdict::Sound, "30 of 30").expect("changes");
        assert_eq!(change.reason, "cleared");
    }
    assert!(h.on_finding(&finding(9, Arm::C1, Level::Suspect)).is_some());
    let change = h.on_workload_changed(at(10), "all moved").expect("changes");
    assert_eq!((change.to, change.reason.as_str()), (HealthState::Healthy, "workload_changed"));
    assert!(h.on_finding(&finding(11, Arm::C1, Level::Suspect)).is_some());
    assert_eq!(h.on_finding(&finding(12, Arm::A1, Level::Suspect)), None);
    assert_eq!(h.on_workload_changed(at(13), "all moved"), None, "canaries do not move with the workload");
}

#[test]
fn a_degraded_burst_degrades_from_any_state() {
    for start in [None, Some(Arm::Rule), Some(Arm::A1)] {
        let mut h = calibrated();
        if let Some(arm) = start {
            let _ = h.on_finding(&finding(1, arm, Level::Suspect));
        }
        let change = h.on_burst(at(2), Verdict::Degraded, "2 of 30").expect("changes");
        assert_eq!((change.to, change.message.as_str()), (HealthState::Degraded, "2 of 30"));
        assert_eq!(h.on_burst(at(3), Verdict::Degraded, "again"), None);
        assert_eq!(h.take_burst(at(4)), None);
        assert_eq!(h.take_burst(at(3 + AGAIN_MS)), Some(BurstReason::Recheck));
        assert_eq!(h.on_recovery(at(5 + AGAIN_MS), "").map(|c| c.to), Some(HealthState::Healthy));
    }
}

#[test]
fn an_undecided_burst_leaves_the_state_and_comes_again_after_five_minutes() {
    let mut h = calibrated();
    let _ = h.on_finding(&finding(1, Arm::A1, Level::Suspect));
    assert_eq!(h.take_burst(at(1)), Some(BurstReason::Suspicion));
    assert_eq!(h.on_burst(at(10), Verdict::Undecided, ""), None);
    assert_eq!(h.state(), HealthState::Suspect);
    assert_eq!(h.take_burst(at(10 + AGAIN_MS - 1)), None);
    assert_eq!(h.take_burst(at(10 + AGAIN_MS)), Some(BurstReason::Suspicion));
}

#[test]
fn hard_faults_degrade_without_calibration_and_recovery_leads_back_to_unknown() {
    let mut h = Health::default();
    let change = h.on_finding(&finding(1, Arm::C2, Level::Degraded)).expect("changes");
    assert_eq!((change.from, change.to), (HealthState::Unknown, HealthState::Degraded));
    assert_eq!(h.reasons().count(), 1, "said once");
    assert_eq!(h.on_finding(&finding(2, Arm::C2, Level::Degraded)), None);
    assert_eq!(h.on_finding(&finding(3, Arm::Rule, Level::Suspect)), None, "worse is worse");
    assert_eq!(h.on_recovery(at(9), "3 sound probes").map(|c| c.to), Some(HealthState::Unknown));
    assert_eq!(h.on_recovery(at(10), ""), None);
}

#[test]
fn without_a_burst_a_suspicion_ends_after_ten_quiet_minutes() {
    let mut h = Health::default();
    let _ = h.on_finding(&finding(0, Arm::Rule, Level::Suspect));
    let _ = h.on_finding(&finding(100_000, Arm::Rule, Level::Suspect));
    assert_eq!(h.take_burst(at(100_000)), None, "there are no prompts");
    assert_eq!(h.tick(at(QUIET_MS)), None);
    assert_eq!(h.tick(at(100_000 + QUIET_MS)).map(|c| c.to), Some(HealthState::Unknown));
}

#[test]
fn unavailable_lies_over_the_state_below() {
    let mut h = calibrated();
    let _ = h.on_finding(&finding(1, Arm::Rule, Level::Suspect));
    let change = h.set_unavailable(at(2), Some(("consecutive_failures", "5 in a row"))).expect("changes");
    assert_eq!((change.from, change.to), (HealthState::Suspect, HealthState::Unavailable));
    assert_eq!(h.set_unavailable(at(3), Some(("x", "y"))), None);
    assert_eq!((h.since(), h.reasons().count()), (at(2), 2));
    assert_eq!(h.set_unavailable(at(4), None).map(|c| c.to), Some(HealthState::Suspect));
    assert_eq!(h.set_unavailable(at(5), None), None);
}

#[test]
fn a_restart_keeps_the_state_and_looks_again() {
    let mut h = calibrated();
    let _ = h.on_burst(at(2), Verdict::Degraded, "2 of 30");
    let text = serde_json::to_string(&h.saved()).expect("writes");
    let mut twin = Health::restore(serde_json::from_str(&text).expect("reads"), at(50));
    assert_eq!((twin.state(), twin.since()), (HealthState::Degraded, at(2)));
    assert_eq!(twin.set_calibrated(at(50), true, true), None, "a baseline alone clears nothing");
    assert_eq!(twin.take_burst(at(50)), Some(BurstReason::Recheck));
    assert_eq!(twin.on_burst(at(60), Verdict::Sound, "").map(|c| c.to), Some(HealthState::Healthy));
}

#[test]
fn a_lost_baseline_is_unknown_again() {
    let mut h = calibrated();
    assert_eq!(h.set_calibrated(at(1), false, true).map(|c| c.to), Some(HealthState::Unknown));
    assert_eq!(h.set_calibrated(at(2), false, true), None);
}
