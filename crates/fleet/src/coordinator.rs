//! The coordinator: carries out a run with the agents of a fleet, and builds one result.
//!
//! `conduct` leads the run in a thread of its own, so that a slow terminal delays no beat. This thread adds up the agents'
//! deliveries. `standings` shows the agents meanwhile, and `verdict` combines their verdicts.
//!
//! Leaves out the agents' side of a run: [`agent`](crate::agent).

mod conduct;
mod standings;
mod verdict;

use std::sync::mpsc::{Receiver, channel};
use std::thread;

use load::{AgentPhase, Config, Gathering, Observer, Plan, Reports, Stop};
use record::LoadResult;
use record::load::{Agent, AgentState};

use crate::access::Access;
use crate::agent::turn::confirm_target;
use crate::error::FleetError;
use crate::messages::ClockReading;
use conduct::{Conductor, Event};
use standings::Standings;
pub use verdict::START_LATE_MAX;

/// Carries out a run with `plan.processes()` agents of a fleet. `config` is the plan's configuration. Blocks until the
/// planned end or until `stop`.
///
/// # Errors
/// [`FleetError`]: too few agents, a refused order, or no part at all. The loss of some agents is part of the result.
pub fn run(
    access: &Access,
    config: &Config,
    plan: &Plan,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Result<LoadResult, FleetError> {
    let settings = serde_json::to_value(config).map_err(|error| FleetError::Settings(error.to_string()))?;
    confirm_target(config.own_this_server, plan)?;
    let given_up = Stop::new();
    let (sender, events) = channel();
    let conductor = Conductor {
        settings,
        agents: plan.processes(),
        until: config.window().until,
        patience: plan.longest_wait(),
        tempo: plan.tempo(),
        stop: stop.clone(),
        given_up: given_up.clone(),
        left: (0..plan.processes()).collect::<Vec<_>>().into(),
        sender,
    };
    thread::scope(|scope| {
        let conducted = scope.spawn(|| conductor.run(access));
        let mut fleet = Fleet::default();
        let gathered = fleet.gather(plan, &events, observer, &given_up);
        conducted.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let mut result = gathered?;
        verdict::combine(&mut result, fleet.agents);
        Ok(result)
    })
}

/// The agents of a run, in the order of their shares.
#[derive(Default)]
struct Fleet {
    agents: Vec<Agent>,
}

impl Fleet {
    /// Adds up the agents' deliveries until the conductor ends.
    fn gather(
        &mut self,
        plan: &Plan,
        events: &Receiver<Event>,
        observer: &mut dyn Observer,
        given_up: &Stop,
    ) -> Result<LoadResult, FleetError> {
        let mut gathering = Gathering::new(plan, observer);
        let (mut reports, mut complete) = (Reports::default(), 0);
        let mut standings = Standings::default();
        for event in events {
            match event {
                Event::Ready(agents) => {
                    let agent = |(number, (name, reading)): (usize, (String, ClockReading))| {
                        agent(name, plan.fraction_of(number as u32), reading)
                    };
                    self.agents = agents.into_iter().enumerate().map(agent).collect();
                    let names = self.agents.iter().zip(0..);
                    let rows = names.map(|(agent, index)| (agent.name.clone(), plan.lanes_of(index)));
                    standings = Standings::new(rows);
                    gathering.show_agents(standings.all());
                    reports = Reports::of(plan);
                }
                Event::Told(index, told) if plan.expects(index, &told) => {
                    if told.point().is_some_and(|point| standings.add_interval(index, &point)) {
                        gathering.show_agents(standings.all());
                    }
                    gathering.add_interval(index, *told);
                    if gathering.given_up.is_requested() {
                        given_up.request();
                    }
                }
                // The interval of another agent's thread comes from no agent of ours.
                Event::Told(..) => {}
                Event::Delivered(index, delivery) => {
                    reports.merge(&delivery.reports);
                    complete += 1;
                    standings.end(index, AgentPhase::Done);
                    gathering.show_agents(standings.all());
                    self.agents[index as usize].part = Some(delivery.part);
                    self.agents[index as usize].state = AgentState::Complete;
                }
                Event::Lost(index, why) => {
                    self.agents[index as usize].lost = Some(why);
                    standings.end(index, AgentPhase::Lost);
                    gathering.show_agents(standings.all());
                    gathering.forget_process(index);
                }
            }
        }
        if complete == 0 {
            let lost = self
                .agents
                .iter()
                .filter_map(|agent| Some(format!("{}: {}", agent.name, agent.lost.as_ref()?)));
            return Err(FleetError::AllLost(lost.collect::<Vec<_>>().join("; ")));
        }
        Ok(gathering.result(reports))
    }
}

fn agent(name: String, share: f64, reading: ClockReading) -> Agent {
    Agent {
        name,
        state: AgentState::Lost,
        lost: None,
        share,
        clock_offset_ns: reading.offset_ns,
        clock_round_trip_ns: reading.round_trip_ns,
        part: None,
    }
}
