//! The least time that a repair can take, whatever the order of its copies and however they are
//! cut up: a lower bound to hold a measured one against.
//!
//! Bytes of each copy flow from its holders to its allowed destinations, many at once if that
//! helps; each node takes out and in what its link allows within the time. The bound is the
//! shortest time in which all of them fit, found by halving over maximum flows.

use std::collections::VecDeque;

/// Bytes that one node may send and receive, in all or in a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Out of it.
    pub egress: f64,
    /// Into it.
    pub ingress: f64,
}

/// One copy to make. Nodes are named by their place among the links.
#[derive(Debug, Clone, PartialEq)]
pub struct Missing {
    /// Its size.
    pub bytes: f64,
    /// Who has the bytes.
    pub holders: Vec<usize>,
    /// Who may take them; a holder among them is passed over.
    pub allowed: Vec<usize>,
}

/// So close the halving comes, as a part of the time.
const PRECISION: f64 = 1e-6;
/// Bytes below this part of the whole are rounding, not bytes.
const TOLERANCE: f64 = 1e-9;

/// The least seconds for all copies over links of constant rates, bytes per second; none if some
/// copy has no holder or no allowed destination with a rate above 0.
pub fn least_seconds(rates: &[Link], copies: &[Missing]) -> Option<f64> {
    let within = |seconds: f64| -> Vec<Link> {
        let over = |rate: f64| rate * seconds;
        rates
            .iter()
            .map(|link| Link { egress: over(link.egress), ingress: over(link.ingress) })
            .collect()
    };
    let bytes: f64 = copies.iter().map(|copy| copy.bytes).sum();
    let slowest = rates.iter().flat_map(|link| [link.egress, link.ingress]);
    let slowest = slowest.filter(|rate| *rate > 0.0).fold(f64::INFINITY, f64::min);
    // All through one link after another: nothing that can be done at all takes longer.
    let at_most = 2.0 * bytes / slowest * rates.len().max(1) as f64;
    least_seconds_within(within, copies, if at_most.is_finite() { at_most } else { 0.0 })
}

/// The least seconds for all copies when `within` tells what each link has let through so many
/// seconds after the start, which never falls; none if `at_most` is too short.
pub fn least_seconds_within(
    within: impl Fn(f64) -> Vec<Link>,
    copies: &[Missing],
    at_most: f64,
) -> Option<f64> {
    if fits(&within(0.0), copies) {
        return Some(0.0);
    }
    if !fits(&within(at_most), copies) {
        return None;
    }
    let (mut too_short, mut enough) = (0.0, at_most);
    while enough - too_short > PRECISION * enough {
        let middle = f64::midpoint(too_short, enough);
        if middle <= too_short || middle >= enough {
            break;
        }
        if fits(&within(middle), copies) {
            enough = middle;
        } else {
            too_short = middle;
        }
    }
    Some(enough)
}

/// Whether all copies can be made with so many bytes out of and into each node.
pub fn fits(room: &[Link], copies: &[Missing]) -> bool {
    let wanted: f64 = copies.iter().map(|copy| copy.bytes).sum();
    let mut flow = Flow::of(room, copies);
    flow.most(wanted) >= wanted * (1.0 - TOLERANCE)
}

#[derive(Debug, Clone, Copy)]
struct Edge {
    to: usize,
    room: f64,
}

/// Dinic's maximum flow. Edges stand in pairs: each one's reverse is its neighbour.
struct Flow {
    edges: Vec<Edge>,
    from: Vec<Vec<usize>>,
}

const START: usize = 0;
const END: usize = 1;

impl Flow {
    /// Start, end, then two vertices for each node and two for each copy: what all of its holders
    /// send passes through it once.
    fn of(room: &[Link], copies: &[Missing]) -> Self {
        let nodes = room.len();
        let mut flow = Self { edges: Vec::new(), from: vec![Vec::new(); 2 + 2 * nodes] };
        for (node, link) in room.iter().enumerate() {
            flow.edge(START, 2 + node, link.egress);
            flow.edge(2 + nodes + node, END, link.ingress);
        }
        for copy in copies {
            let (into, out) = (flow.from.len(), flow.from.len() + 1);
            flow.from.extend([Vec::new(), Vec::new()]);
            flow.edge(into, out, copy.bytes);
            let known = |node: &&usize| **node < nodes;
            for holder in copy.holders.iter().filter(known) {
                flow.edge(2 + holder, into, copy.bytes);
            }
            for allowed in copy.allowed.iter().filter(known) {
                if !copy.holders.contains(allowed) {
                    flow.edge(out, 2 + nodes + allowed, copy.bytes);
                }
            }
        }
        flow
    }

    fn edge(&mut self, from: usize, to: usize, room: f64) {
        let room = if room.is_finite() { room.max(0.0) } else { f64::MAX };
        self.from[from].push(self.edges.len());
        self.from[to].push(self.edges.len() + 1);
        self.edges.extend([Edge { to, room }, Edge { to: from, room: 0.0 }]);
    }

    /// The most that flows from start to end, up to what is wanted.
    fn most(&mut self, wanted: f64) -> f64 {
        let least = wanted * TOLERANCE / self.edges.len().max(1) as f64;
        let mut flowing = 0.0;
        while let Some(level) = self.levels(least) {
            let mut next = vec![0; self.from.len()];
            loop {
                let pushed = self.push(&level, &mut next, least);
                if pushed <= 0.0 {
                    break;
                }
                flowing += pushed;
            }
        }
        flowing
    }

    /// How far each vertex is from the start over edges with room, if the end can be reached.
    fn levels(&self, least: f64) -> Option<Vec<usize>> {
        let mut level = vec![usize::MAX; self.from.len()];
        level[START] = 0;
        let mut queue = VecDeque::from([START]);
        while let Some(vertex) = queue.pop_front() {
            for edge in self.from[vertex].iter().map(|e| self.edges[*e]) {
                if edge.room > least && level[edge.to] == usize::MAX {
                    level[edge.to] = level[vertex] + 1;
                    queue.push_back(edge.to);
                }
            }
        }
        (level[END] != usize::MAX).then_some(level)
    }

    /// Pushes along one shortest path; `next` remembers which edges are of no more use.
    fn push(&mut self, level: &[usize], next: &mut [usize], least: f64) -> f64 {
        let mut path: Vec<usize> = Vec::new();
        let mut vertex = START;
        while vertex != END {
            let usable = self.from[vertex].get(next[vertex]).copied();
            match usable {
                Some(edge) => {
                    let Edge { to, room } = self.edges[edge];
                    if room > least && level[to] == level[vertex] + 1 {
                        path.push(edge);
                        vertex = to;
                    } else {
                        next[vertex] += 1;
                    }
                }
                // A dead end: back, and past the edge that led here.
                None => match path.pop() {
                    Some(edge) => {
                        vertex = self.edges[edge ^ 1].to;
                        next[vertex] += 1;
                    }
                    None => return 0.0,
                },
            }
        }
        let most = path.iter().map(|e| self.edges[*e].room).fold(f64::INFINITY, f64::min);
        for edge in path {
            self.edges[edge].room -= most;
            self.edges[edge ^ 1].room += most;
        }
        most
    }
}

#[cfg(test)]
#[path = "bound_tests.rs"]
mod tests;
