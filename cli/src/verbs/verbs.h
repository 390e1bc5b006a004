#pragma once

#include "args.h"

// One function a verb, one file a function; the value is the exit code.
namespace strata::cli {

int run_config(const Args& args);
int run_doctor(const Args& args);

}  // namespace strata::cli
