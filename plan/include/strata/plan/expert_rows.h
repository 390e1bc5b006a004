#pragma once

#include <cstddef>
#include <string>

#include <strata/graph/program.h>

namespace strata {

/// The name of the output of the n-th mixture of experts of a program: i32 [E + 1], expert e has computed
/// rows [e, e + 1) of it.
std::string expert_rows_output(std::size_t mixture);
/// The program with such an output for each of its mixtures, in their order.
Program with_expert_rows(Program program);

}  // namespace strata
