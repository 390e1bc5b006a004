#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <strata/graph/program.h>
#include <strata/session/session_options.h>

namespace strata {

struct TrainConfig;

/// The name of the output of the n-th mixture of experts of a program: i32 [E + 1], expert e has computed
/// rows [e, e + 1) of it.
std::string expert_rows_output(std::size_t mixture);
/// The program with such an output for each of its mixtures, in their order.
Program with_expert_rows(Program program);
/// Whether the programs of a run have these outputs: not if ranks share the model, of which each knows its
/// own rows alone.
bool has_expert_rows(const TrainConfig& config);
/// The outputs about experts that a step of the run adds up: those, and losses of routers.
std::vector<StepSum> expert_sums(const TrainConfig& config);
/// The parameters that a step of the run changes by what it has added up (train.router_bias_rate).
std::vector<std::string> balanced_biases(const TrainConfig& config);

}  // namespace strata
