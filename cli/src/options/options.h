// The options of each verb, added to its parser. Each changes `args`, which must outlive `app`.
#pragma once

namespace CLI {  // NOLINT(readability-identifier-naming): of another library
class App;
}

namespace strata::cli {

struct Args;

void add_init_options(CLI::App& app, Args& args);
void add_train_options(CLI::App& app, Args& args);
void add_machine_options(CLI::App& app, Args& args);
void add_budget_options(CLI::App& app, Args& args);
void add_bench_options(CLI::App& app, Args& args);
void add_verify_options(CLI::App& app, Args& args);
void add_doctor_options(CLI::App& app, Args& args);
void add_generate_options(CLI::App& app, Args& args);
void add_chat_options(CLI::App& app, Args& args);
void add_serve_options(CLI::App& app, Args& args);
void add_eval_options(CLI::App& app, Args& args);
void add_score_options(CLI::App& app, Args& args);
void add_export_options(CLI::App& app, Args& args);
void add_report_options(CLI::App& app, Args& args);
void add_top_options(CLI::App& app, Args& args);
void add_compare_options(CLI::App& app, Args& args);
void add_trace_options(CLI::App& app, Args& args);
void add_ckpt_options(CLI::App& app, Args& args);
void add_tokenizer_options(CLI::App& app, Args& args);
void add_demo_options(CLI::App& app, Args& args);
void add_data_options(CLI::App& app, Args& args);
void add_config_options(CLI::App& app, Args& args);
void add_completions_options(CLI::App& app, Args& args);
void add_man_options(CLI::App& app, Args& args);
void add_complete_options(CLI::App& app, Args& args);

}  // namespace strata::cli
