#pragma once

#include "args.h"

// One function per verb, each in its own file. The return value is the exit code.
namespace strata::cli {

int run_bench(const Args& args);
int run_budget(const Args& args);
int run_chat(const Args& args);
int run_ckpt(const Args& args);
int run_compare(const Args& args);
int run_complete(const Args& args);
int run_completions(const Args& args);
int run_config(const Args& args);
int run_config_convert(const Args& args);
int run_data(const Args& args);
int run_demo(const Args& args);
int run_doctor(const Args& args);
int run_eval(const Args& args);
int run_export(const Args& args);
int run_generate(const Args& args);
int run_init(const Args& args);
int run_man(const Args& args);
int run_plan(const Args& args);
int run_report(const Args& args);
int run_score(const Args& args);
int run_serve(const Args& args);
int run_tokenizer(const Args& args);
int run_top(const Args& args);
int run_trace(const Args& args);
int run_train(const Args& args);
int run_verify(const Args& args);

}  // namespace strata::cli
