// The step of gpt2_step with llm.c's CPU trainer, whose source this includes: compile with -I of a copy of it
// and the flags of its Makefile (bench/claims/gpt2_step does). Uses random parameters instead of its
// checkpoint file.
//   llmc_step STEPS
// Prints the seconds of each step, after an untimed one, as JSON.
#define TESTING  // omits its main()
#include "train_gpt2.c"

static void build_random(GPT2 *model, uint64_t *rng) {
  memset(model, 0, sizeof *model);
  model->config = (GPT2Config){.max_seq_len = 1024, .vocab_size = 50257, .padded_vocab_size = 50304,
                               .num_layers = 12, .num_heads = 12, .channels = 768};
  fill_in_parameter_sizes(model->param_sizes, model->config);
  for (size_t i = 0; i < NUM_PARAMETER_TENSORS; i++) model->num_parameters += model->param_sizes[i];
  model->params_memory = malloc_and_point_parameters(&model->params, model->param_sizes);
  for (size_t i = 0; i < model->num_parameters; i++) {
    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    model->params_memory[i] = 0.04f * ((float)(*rng >> 40) / 16777216.0f - 0.5f);
  }
  const size_t wide = (size_t)model->config.num_layers * model->config.channels;
  for (size_t i = 0; i < wide; i++) model->params.ln1w[i] = model->params.ln2w[i] = 1.0f;
  for (int i = 0; i < model->config.channels; i++) model->params.lnfw[i] = 1.0f;
}

int main(int argc, char **argv) {
  enum { B = 4, T = 64 };
  const int steps = argc == 2 ? atoi(argv[1]) : 1;
  double *seconds = mallocCheck((size_t)(steps + 1) * sizeof *seconds);
  uint64_t rng = 1;
  GPT2 model;
  build_random(&model, &rng);
  int inputs[B * T], targets[B * T];
  for (int step = 0; step <= steps; step++) {
    for (int i = 0; i < B * T; i++) {
      rng = rng * 6364136223846793005u + 1442695040888963407u;
      inputs[i] = (int)((rng >> 33) % 50257);
      targets[i] = (int)((rng >> 40) % 50257);
    }
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    gpt2_forward(&model, inputs, targets, B, T);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    gpt2_update(&model, 1e-4f, 0.9f, 0.999f, 1e-8f, 0.0f, step + 1);
    clock_gettime(CLOCK_MONOTONIC, &end);
    seconds[step] = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
    fprintf(stderr, "step %d: loss %f, %.3f s\n", step, model.mean_loss, seconds[step]);
  }
  printf("{\"seconds\": [");  // after the output of llm.c itself
  for (int step = 1; step <= steps; step++) printf("%s%.6f", step > 1 ? ", " : "", seconds[step]);
  printf("]}\n");
  free(seconds);
  gpt2_free(&model);
  return 0;
}
