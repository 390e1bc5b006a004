// Runs strata on a Hugging Face folder and writes the results that compare.py compares with PyTorch: logits,
// gradients, the losses of some training steps, and the trained model as a folder. Prints how bf16 GEMMs are
// computed.
//   oracle_probe HF_DIR BATCHES.safetensors OUT_DIR [--steps N] [--lr X] [--dtype f32|bf16] [--widened]
//     [--router-aux X] [--router-z X] [--adapter PEFT_DIR [--pissa] | --galore KEY=VALUE ...]
// --steps 0: no training; --widened: bf16 GEMMs are computed as on a CPU without bf16 instructions.
// --adapter: only the adapters of a folder of PEFT are trained; gradients and the trained values are such
// folders, as is `same`, what was read; `merged` is the whole model with them. A quantized HF_DIR stays
// quantized. --pissa: of the folder, only the settings are taken; the adapter starts as PiSSA. Then `start`
// is what A and B start as, and the trained values are those of the converted adapter.
// --galore: the model is trained as `strata train` does it with optim.name=galore and these keys, and nothing
// else is written than the losses and the trained model.
#include <cstdio>
#include <map>
#include <stdexcept>

#include <fmt/format.h>

#include <strata/engine/engine.h>
#include <strata/graph/passes.h>
#include <strata/kernels/bf16_gemm.h>
#include <strata/model/adapter/adapter.h>
#include <strata/model/adapter/peft_folder.h>
#include <strata/model/adapter/weight_parts.h>
#include <strata/model/decoder.h>
#include <strata/model/hf/folder.h>
#include <strata/runtime/backend/host_backend.h>
#include <strata/runtime/str.h>
#include <strata/config/load_config.h>
#include <strata/plan/subspaces.h>
#include <strata/train/subspaces/schedule.h>
#include <strata/config/train_config.h>
#include <strata/config/model_choice.h>
#include <strata/plan/record_programs.h>
#include <strata/plan/activation_choices.h>

#include "choices.h"
#include "file_batches.h"
#include "forward_once.h"

namespace strata {
namespace {

struct Options {
  std::string folder, batches, out, adapter;
  std::vector<std::string> galore;  // assignments; empty: not by GaLore
  int steps = 50;
  double lr = 1e-3;
  DType compute = DType::f32;
  RouterLosses routers;
  bool widened = false, pissa = false;
};

/// The model, and its adapter if there is one.
struct Model {
  std::unique_ptr<HfFolder> folder;
  std::unique_ptr<PeftFolder> adapter;
  AdapterSettings trained;  // the settings of `adapter`, or PiSSA with them
  std::int64_t seq = 0;     // tokens of a row of the batches
  const DecoderConfig& config() const { return folder->config(); }
  bool starts_as_pissa() const {
    const auto* const lora = std::get_if<LoraSettings>(&trained);
    return adapter && lora != nullptr && lora->pissa;
  }
  bool has(std::string_view param) const {
    return folder->has_param(param) || (adapter && !starts_as_pissa() && adapter->has(param));
  }
  Status read_part(std::string_view param, std::int64_t offset, std::span<float> into) const {
    const bool is_adapter = adapter && adapter->has(param);
    return is_adapter ? adapter->read_part(param, offset, into) : folder->read_part(param, offset, into);
  }
  ParamSource source() const {
    return [this](std::string_view param, std::span<float> into) { return read_part(param, 0, into); };
  }
  Program with_adapter(Program program) const {
    if (!adapter) return program;
    for (ParamInfo& param : program.params) param.trainable = false;
    DecoderConfig decoder = config();
    decoder.seq = seq;
    program = must(add_adapter(std::move(program), decoder, trained));
    if (folder->quantized_to() == kernels::WeightFormat::full) return program;
    return must(quantize_weights(std::move(program), folder->quantized_to(), weight_parts(config())));
  }
  /// Writes values of what is trained to the folder `out`/`name`.
  void write(const std::string& out, const char* name, const ParamSource& source) const {
    must(
        export_peft(posix_io(), str(out, "/", name), config(), adapter->settings(), adapter->base(), source));
  }
  /// Writes an adapter that others can load.
  void export_trained(const std::string& out, const ParamSource& source) const {
    must(export_peft(posix_io(), str(out, "/adapter"), config(), folder_settings(trained), adapter->base(),
                     folder_values(source, config(), trained)));
  }
};

/// An engine with everything it needs.
struct Run {
  Run(const ProgramSet& programs, const SessionOptions& options, const Model& model)
      : plan(must(Engine::plan(programs, options))),
        pool(must(ThreadPool::create(2))),
        backend(must(create_host_backend({}, *pool, clock))),
        engine(must(Engine::create(*plan, {*backend, *pool, clock, posix_io()}))) {
    const auto values_of = [&](const StatePiece& piece, std::span<float> values) -> Result<bool> {
      if (!model.has(piece.name)) return false;
      STRATA_TRY(model.read_part(piece.name, piece.offset, values));
      return true;
    };
    must(engine->initialize(
        1, values_of,
        [&](const StatePiece& piece, const kernels::QuantizedMatrix& matrix, std::span<std::byte> bytes) {
          return model.folder->read_quantized(piece.name, matrix, piece.offset, bytes);
        }));
  }
  std::map<std::string, std::vector<float>> all(Payload payload) {
    std::map<std::string, std::vector<float>> tensors;
    must(engine->visit(payload, [&](const StatePiece& piece, std::span<const float> values) {
      std::vector<float>& tensor = tensors[std::string(piece.name)];
      tensor.insert(tensor.end(), values.begin(), values.end());
      return Status::ok();
    }));
    return tensors;
  }
  /// Adds what the last step's routers chose.
  void add_choices(Choices& choices, const std::string& of, const ProgramSet& programs) const {
    choices.add(of, programs[ProgramRole::train],
                [&](std::string_view name) { return engine->output("train", name); });
  }
  std::unique_ptr<const RunPlan> plan;
  SteadyClock clock;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Engine> engine;
};

ParamSource source_of(const std::map<std::string, std::vector<float>>& tensors) {
  return [&tensors](std::string_view name, std::span<float> into) {
    const std::vector<float>& values = tensors.at(std::string(name));
    std::copy(values.begin(), values.end(), into.begin());
    return Status::ok();
  };
}

HfExport options_of(const HfFolder& folder) {
  HfExport options;
  options.source_config = folder.config_text();
  return options;
}

// The first moment after one step is the gradient if beta1 = 0 and there is neither clipping nor decay.
void write_gradients(const Options& o, const ProgramSet& programs, const Model& model, FileBatches& batches,
                     Choices& choices) {
  SessionOptions options;
  options.clip = 0;
  options.optimizer.beta1 = 0;
  Run run(programs, options, model);
  StepReport report;
  must(run.engine->train_step(batches, 0.0, report));
  run.add_choices(choices, "gradients", programs);
  const auto gradients = run.all(Payload::m);
  if (model.adapter) return model.write(o.out, "grads", source_of(gradients));
  const auto is_trained = [&](std::string_view param) { return gradients.count(std::string(param)) > 0; };
  must(export_hf_tensors(posix_io(), o.out + "/grads.safetensors", model.config(), is_trained,
                         source_of(gradients)));
}

std::vector<float> infer_all(const ProgramSet& programs, const Model& model, const FileBatches& batches) {
  ProgramSet only;
  only[ProgramRole::infer] = programs[ProgramRole::infer];
  Run run(only, {}, model);
  std::vector<float> logits;
  const auto tokens = batches.of("tokens", 0);
  for (std::uint64_t b = 0; b < batches.shape[1]; ++b)
    for (std::uint64_t t = 0; t < batches.shape[2]; ++t) {
      const std::span<const std::int32_t> row(tokens.data() + b * batches.shape[2], batches.shape[2]);
      const auto values = must(run.engine->infer(row, static_cast<std::int64_t>(t)));
      logits.insert(logits.end(), values.begin(), values.end());
    }
  return logits;
}

// The program alone, of rows that are whole one by one. The engine returns no choices of an inference, and
// infers no packed rows.
std::vector<float> run_alone(const Program& program, const Model& model, const FileBatches& batches,
                             Choices& choices) {
  const std::size_t tokens = batches.shape[2] * (batches.packed() ? batches.shape[1] : 1);
  std::vector<float> logits;
  for (std::size_t first = 0; first < batches.shape[1] * batches.shape[2]; first += tokens) {
    const auto outputs = forward_once(program, model.source(), [&](const std::string& name) {
      const auto all = batches.of(name.c_str(), 0);
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
      return std::vector<std::int32_t>(begin, begin + static_cast<std::ptrdiff_t>(tokens));
    });
    choices.add("logits", program,
                [&](std::string_view name) { return std::span<const float>(outputs.find(name)->second); });
    const std::vector<float>& rows = outputs.find("logits")->second;
    logits.insert(logits.end(), rows.begin(), rows.end());
  }
  return logits;
}

void write_logits(const Options& o, const ProgramSet& programs, const Model& model,
                  const FileBatches& batches, Choices& choices) {
  std::vector<float> logits, alone;
  if (!model.adapter) alone = run_alone(programs[ProgramRole::infer], model, batches, choices);
  logits = batches.packed() ? alone : infer_all(programs, model, batches);
  if (!model.adapter && logits != alone)
    throw std::runtime_error("the engine infers other logits than its program does alone");
  const auto vocab = static_cast<std::uint64_t>(model.config().vocab);
  const auto writer =
      must(SafetensorsWriter::create(posix_io(), o.out + "/logits.safetensors",
                                     {{"logits", "F32", {batches.shape[1], batches.shape[2], vocab}}}));
  must(writer->append(std::as_bytes(std::span(logits))));
  must(writer->finish());
}

void write_training(const Options& o, const ProgramSet& programs, const Model& model, FileBatches& batches,
                    Choices& choices) {
  SessionOptions options;
  options.clip = 1.0;
  options.optimizer.beta1 = 0.9;
  options.optimizer.beta2 = 0.95;
  options.optimizer.eps = 1e-8;
  options.optimizer.weight_decay = 0.1;
  Run run(programs, options, model);
  if (model.starts_as_pissa()) {
    const auto start = run.all(Payload::param);
    model.write(o.out, "start", source_of(start));
  }
  std::string losses;
  for (int step = 0; step < o.steps; ++step) {
    StepReport report;
    must(run.engine->train_step(batches, o.lr, report));
    run.add_choices(choices, "steps", programs);
    losses += fmt::format("{}{}", step > 0 ? ", " : "", report.loss);
  }
  must(write_text_atomically(posix_io(), o.out + "/losses.json", str("{\"losses\": [", losses, "]}\n")));
  const auto params = run.all(Payload::param);
  if (model.adapter) return model.export_trained(o.out, source_of(params));
  must(export_hf(posix_io(), o.out + "/hf", model.config(), source_of(params), options_of(*model.folder)));
  must(check_hf_export(posix_io(), o.out + "/hf", source_of(params), DType::f32));
}

TrainConfig galore_config(const Options& o, const FileBatches& batches) {
  ConfigRequest request;
  request.items = {"model.from=" + o.folder,
                   "optim.name=galore",
                   "optim.weight_decay=0",
                   "train.dtype=f32",
                   "memory.backend=host",
                   str("model.seq=", batches.shape[2]),
                   str("train.micro_batch=", batches.shape[1])};
  request.items.insert(request.items.end(), o.galore.begin(), o.galore.end());
  return must(load_config(request)).config;
}

// The programs, parameter groups and subspaces of `strata train`, on the micro-batches of the file.
void write_galore(const Options& o, const Model& model, FileBatches& batches) {
  const TrainConfig config = galore_config(o, batches);
  const DecoderConfig decoder = decoder_config(config);
  ActivationChoice activations;
  activations.breadth_first = config.train.grad_accum > 1;
  const ProgramSet programs = must(record_programs(config, activations));
  SessionOptions options;
  options.clip = config.optim.clip;
  options.grad_accum = config.train.grad_accum;
  options.optimizer.beta1 = config.optim.beta1;
  options.optimizer.beta2 = config.optim.beta2;
  options.optimizer.eps = config.optim.eps;
  options.optimizer.weight_decay = config.optim.weight_decay;
  options.groups = must(param_groups(config, decoder));
  Run run(programs, options, model);
  SubspaceSchedule subspaces(config);
  std::string losses;
  for (int step = 0; step < o.steps; ++step) {
    StepReport report;
    must(subspaces.before_step(*run.engine, batches));
    must(run.engine->train_step(batches, o.lr, report));
    losses += fmt::format("{}{}", step > 0 ? ", " : "", report.loss);
  }
  must(write_text_atomically(posix_io(), o.out + "/losses.json", str("{\"losses\": [", losses, "]}\n")));
  const auto params = run.all(Payload::param);
  const auto merged = merged_source(source_of(params), must(subspace_groups(config, decoder)), decoder);
  must(export_hf(posix_io(), o.out + "/hf", model.config(), merged, options_of(*model.folder)));
}

void probe(const Options& o) {
  kernels::force_widened_bf16_gemm(o.widened);
  std::printf("%s\n", kernels::bf16_gemm_kind());  // compare.py shows what the first line says
  Model model{must(HfFolder::open(posix_io(), o.folder)), nullptr, {}};
  if (!o.adapter.empty()) {
    model.adapter = must(PeftFolder::open(posix_io(), o.adapter, model.config()));
    model.trained = model.adapter->settings();
    if (o.pissa) std::get<LoraSettings>(model.trained).pissa = kernels::SvdMethod::exact;
    const std::string base(to_string(model.folder->quantized_to()));
    if (!base.empty()) std::printf("the base stays in %s\n", base.c_str());
  }
  FileBatches batches(o.batches);
  must(posix_io().make_dirs(o.out));
  if (!o.galore.empty()) return write_galore(o, model, batches);
  DecoderConfig config = model.config();
  config.seq = model.seq = static_cast<std::int64_t>(batches.shape[2]);
  const auto batch = static_cast<std::int64_t>(batches.shape[1]);
  const DecoderRows rows = batches.packed() ? DecoderRows::packed : DecoderRows::whole;
  ProgramSet programs;
  programs[ProgramRole::eval] =
      model.with_adapter(must(record_decoder(config, batch, DecoderHead::loss, rows, o.compute)));
  programs[ProgramRole::train] =
      must(derive_backward(with_choices(model.with_adapter(must(record_decoder(
                               config, batch, DecoderHead::loss, rows, o.compute, o.routers)))),
                           "loss"));
  programs[ProgramRole::infer] = with_choices(model.with_adapter(
      must(record_decoder(config, batches.packed() ? batch : 1, DecoderHead::logits, rows, o.compute))));
  if (model.adapter && !o.pissa) model.write(o.out, "same", model.source());
  if (model.adapter && !o.pissa && check_can_merge(model.config(), model.trained).is_ok()) {
    const auto merged =
        with_token_rows(merged_source(model.source(), lora_groups(model.adapter->targets()), model.config()),
                        must(token_targets(model.config(), std::get<LoraSettings>(model.trained))));
    must(export_hf(posix_io(), o.out + "/merged", model.config(), merged, options_of(*model.folder)));
  }
  Choices choices;
  write_logits(o, programs, model, batches, choices);
  programs[ProgramRole::infer] = {};
  write_gradients(o, programs, model, batches, choices);
  if (o.steps > 0) write_training(o, programs, model, batches, choices);
  choices.write(o.out);
}

DType parse_dtype(const std::string& word) {
  for (const DType dtype : {DType::f32, DType::bf16})
    if (word == to_string(dtype)) return dtype;
  throw std::runtime_error("--dtype " + word + ": f32 or bf16");
}

Options parse(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  Options o;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool has_value = i + 1 < words.size();
    if (words[i] == "--steps" && has_value) {
      o.steps = std::stoi(words[++i]);
    } else if (words[i] == "--lr" && has_value) {
      o.lr = std::stod(words[++i]);
    } else if (words[i] == "--router-aux" && has_value) {
      o.routers.aux_coef = std::stof(words[++i]);
    } else if (words[i] == "--router-z" && has_value) {
      o.routers.z_coef = std::stof(words[++i]);
    } else if (words[i] == "--adapter" && has_value) {
      o.adapter = words[++i];
    } else if (words[i] == "--galore" && has_value) {
      o.galore.push_back(words[++i]);
    } else if (words[i] == "--dtype" && has_value) {
      o.compute = parse_dtype(words[++i]);
    } else if (words[i] == "--pissa") {
      o.pissa = true;
    } else if (words[i] == "--widened") {
      o.widened = true;
    } else {
      names.push_back(words[i]);
    }
  }
  if (names.size() != 3)
    throw std::runtime_error(
        "usage: oracle_probe HF_DIR BATCHES.safetensors OUT_DIR [--steps N] [--lr X] [--dtype f32|bf16] "
        "[--widened] [--router-aux X] [--router-z X] [--adapter PEFT_DIR [--pissa] | --galore KEY=VALUE "
        "...]");
  o.folder = names[0];
  o.batches = names[1];
  o.out = names[2];
  return o;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  try {
    strata::probe(strata::parse(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "oracle_probe: %s\n", error.what());
    return 1;
  }
}
