/* strata for trainers in C, and in any language that calls C: the states of an optimizer in RAM and on NVMe.
 *
 * A session holds what an optimizer keeps beside parameters and gradients (moments, and the bits of f32
 * masters that 16-bit parameters lack). Parameters and gradients stay in the caller's memory:
 *
 *   strata_session_create -> strata_session_add, once per parameter -> strata_session_seal
 *     -> strata_session_step, once per step -> strata_session_close
 *
 * Activations hold what backward needs of forward, and belong to no session.
 *
 * Every function returns a status, except those that return text; strata_last_error() has the reason, which
 * names the object and the numbers. No function throws, exits, installs signal handlers or writes to the
 * terminal.
 *
 * Structs begin with `struct_size`, which the caller sets to sizeof of the struct it was compiled with. A
 * library that is older than the header accepts a longer struct if the rest of it is zero; a newer one takes
 * missing fields as zero. Zero is the default of every field, unless it says otherwise. Pointers in structs
 * are read during the call only.
 *
 * Threads: any thread may use any session; calls to the same session wait for each other, and calls to the
 * same activations run at the same time. Callbacks run on
 * the thread that makes the call and must neither throw nor call the same session. After fork() a child
 * cannot use sessions and activations of its parent (STRATA_UNSUPPORTED); their memory is not copied for it.
 *
 * Enumerations are int32_t with named values, so that every bit pattern is a value.
 *
 * Memory and files are given back by strata_session_close() and strata_activations_close(), or when the
 * process ends, in whatever way. */
#ifndef STRATA_H
#define STRATA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Increases when functions or fields are added; what exists does not change. */
#define STRATA_ABI_VERSION 1
#define STRATA_UNLIMITED UINT64_MAX

typedef int32_t strata_status;
enum {
  STRATA_OK = 0,
  STRATA_INVALID = 1,       /* a wrong argument, setting or file content; nothing was changed */
  STRATA_NOT_FOUND = 2,     /* a file or tensor that does not exist */
  STRATA_DOES_NOT_FIT = 3,  /* a budget is too small; nothing was changed */
  STRATA_OUT_OF_MEMORY = 4, /* the system refused memory although the budget allowed it */
  STRATA_IO_ERROR = 5,
  STRATA_NO_SPACE = 6,    /* the file system is full */
  STRATA_CORRUPT = 7,     /* a checksum, length or structure is wrong */
  STRATA_UNSUPPORTED = 8, /* this build, machine or process cannot do it */
  STRATA_CANCELLED = 9,   /* a callback asked to stop */
  STRATA_TIMEOUT = 10,
  STRATA_DIVERGED = 11, /* NaN or infinity where training needs a finite number */
  STRATA_LOST_PEER = 12,
  STRATA_INTERNAL = 13,
  STRATA_CLOSED = 14 /* the handle was never given, or what it belongs to was closed */
};

typedef int32_t strata_dtype;
enum { STRATA_F32 = 0, STRATA_BF16 = 1, STRATA_F16 = 2 };

typedef int32_t strata_optimizer;
enum {
  STRATA_ADAMW = 0,
  STRATA_ADAM = 1,
  STRATA_LION = 2,
  STRATA_LAMB = 3,
  STRATA_ADAGRAD = 4,
  STRATA_SGD = 5
};

/* The contents of a session. STATES: the states that the optimizer needs beside parameters and gradients,
 * which stay the caller's. PARAMS: the parameters, too, of which the caller reads copies, and the gradients
 * of a step. */
typedef int32_t strata_holds;
enum { STRATA_HOLDS_STATES = 0, STRATA_HOLDS_PARAMS = 1 };

/* How moments are stored: f32; bf16 or int8 in blocks, with stochastic rounding. */
typedef int32_t strata_state_format;
enum { STRATA_STATES_F32 = 0, STRATA_STATES_BF16 = 1, STRATA_STATES_INT8 = 2 };

/* Where states live. AUTO: in RAM as far as the budget has room, the rest on NVMe. PINNED: in RAM, or the
 * session is refused. NVME: on NVMe; RAM is only a working window. */
typedef int32_t strata_placement;
enum { STRATA_PLACE_AUTO = 0, STRATA_PLACE_PINNED = 1, STRATA_PLACE_NVME = 2 };

/* A state, which strata_session_visit() and strata_session_fill() access as f32. PARAM is the master. */
typedef int32_t strata_state;
enum { STRATA_PARAM = 0, STRATA_FIRST_MOMENT = 1, STRATA_SECOND_MOMENT = 2 };

/* A session; 0 is never one. Copies refer to the same session. */
typedef uint64_t strata_session;

/* "0.1.0" */
const char* strata_version(void);
/* STRATA_ABI_VERSION of the library. */
uint32_t strata_abi_version(void);
/* "does_not_fit" */
const char* strata_status_name(strata_status status);
/* Why the last call of this thread failed; "" if it did not. Valid until the thread's next call. */
const char* strata_last_error(void);

/* ---- planning ---- */

typedef struct strata_session_options {
  size_t struct_size;
  strata_optimizer optimizer;
  /* Nonzero: SGD with momentum, which keeps a moment. */
  int32_t has_momentum;
  strata_state_format states;
  strata_placement placement;
  /* Bytes of RAM for states and buffers; 0: 40 % of what is free if there is NVMe, else all of it. */
  uint64_t pinned_bytes;
  /* Bytes on NVMe; 0: as many as needed if there is a folder, else none. */
  uint64_t nvme_bytes;
  /* Folders on NVMe, over which states are spread; created if absent. The files have no names. */
  const char* const* nvme_dirs;
  size_t n_nvme_dirs;
  /* Elements of a chunk, which is moved and updated as a whole; 0: chosen. */
  int64_t chunk_elems;
  /* Threads that update; 0: the cores of this process. */
  int32_t threads;
  /* This rank of several that each have a session; 0 and 0, or 0 of 1. Others are refused so far. */
  int32_t rank, ranks;
  strata_holds holds;
  /* For stochastic rounding. */
  uint64_t rounding_seed;
} strata_session_options;

typedef struct strata_param {
  size_t struct_size;
  const char* name; /* unique in the session */
  strata_dtype dtype;
  int32_t n_dims; /* 0 to 8 */
  const int64_t* dims;
  /* Nonzero: it is not trained. Only a session that holds the parameters has such. */
  int32_t is_frozen;
  int32_t reserved; /* 0 */
} strata_param;

/* Bytes by tier: what the plan needs, before anything is allocated. */
typedef struct strata_plan {
  size_t struct_size;
  uint64_t pinned_bytes, nvme_bytes;
  int64_t n_params; /* elements of all parameters */
  int64_t n_chunks, chunk_elems;
} strata_plan;

/* Creates a session without parameters. Errors: INVALID, naming the option. */
strata_status strata_session_create(const strata_session_options* options, strata_session* session);

/* Registers the next parameter; parameters are numbered from 0. Errors: INVALID after sealing. */
strata_status strata_session_add(strata_session session, const strata_param* param);

/* Gives all `n` registered parameters other names, unique in the session, at any time: checkpoints and
 * messages use them from then on. Errors: INVALID, naming the parameter; then nothing was changed. */
strata_status strata_session_rename(strata_session session, const char* const* names, size_t n);

/* Plans the registered parameters; allocates nothing. Errors: INVALID with all problems of the parameters;
 * DOES_NOT_FIT with the smallest budgets that do. */
strata_status strata_session_plan(strata_session session, strata_plan* plan);

/* Plans, checks that the memory is free now, and allocates it. `params`: the addresses of the parameters,
 * which are contiguous and `n` as registered; f32 masters of 16-bit ones start out with their values, moments
 * with zero. Errors: those of strata_session_plan(); OUT_OF_MEMORY, NO_SPACE, IO_ERROR. After an error the
 * session is as before. */
strata_status strata_session_seal(strata_session session, void* const* params, size_t n);

/* ---- a session that holds the parameters ---- */

/* Copies parameters as they are after the last step, in their own dtypes, to `into[i]` each. A chunk whose
 * update is pending is updated first. Errors: INVALID; those of NVMe, after which the call may be repeated.
 */
strata_status strata_session_read(strata_session session, const int64_t* params, void* const* into, size_t n);

/* Parameters become what the caller has made of them, in their own dtypes, from `from[i]` each. An element
 * that differs from its rounded f32 master becomes the master; the others keep all bits of theirs. Moments
 * stay. A session that does not hold the parameters needs this of F16 alone, whose masters have all bits,
 * after strata_session_bind(). Errors: INVALID, before anything has changed; those of NVMe, after which the
 * states belong to no step. */
strata_status strata_session_write(strata_session session, const int64_t* params, const void* const* from,
                                   size_t n);

/* Begins to fetch what reading the parameters will need, as far as there is room. */
strata_status strata_session_prefetch(strata_session session, const int64_t* params, size_t n);

/* Adds a gradient to the step's, in f32 and in the order of the calls. It may be freed when the call returns.
 * `square_sum`, if not null, is set to the sum of the squares of the parameter's gradient so far. Errors:
 * INVALID; those of NVMe, after which the step's gradients are discarded. */
strata_status strata_session_accumulate(strata_session session, int64_t param, const void* gradient,
                                        strata_dtype dtype, double* square_sum);

/* Sets `*gradient` to the address of a parameter's gradient so far, which is valid until the next call with
 * the session. Errors: INVALID if there is none. */
strata_status strata_session_gradient(strata_session session, int64_t param, const float** gradient);

/* The norm of the step's gradients so far, in f64. */
strata_status strata_session_norm(strata_session session, double* norm);

/* Forgets the gradients of `n` parameters, or, if `params` is null and `n` is 0, of all. */
strata_status strata_session_discard(strata_session session, const int64_t* params, size_t n);

/* ---- steps ---- */

/* The settings of a parameter group. Here zero is zero. */
typedef struct strata_settings {
  size_t struct_size;
  double lr, beta1, beta2, eps, weight_decay, momentum;
  int32_t nesterov;
  int32_t reserved;   /* 0 */
  double grad_factor; /* multiplies gradients: unscaling and clipping in one pass */
} strata_settings;

typedef struct strata_update {
  size_t struct_size;
  int64_t param;        /* its number */
  void* values;         /* read and written; null if the session holds the parameters */
  const void* gradient; /* null: the one that was accumulated */
  strata_dtype gradient_dtype;
  int32_t reserved; /* 0 */
  const strata_settings* settings;
} strata_update;

/* Updates the parameters in `updates`, each at most once, in any order. The others do not change: each
 * parameter has a step count of its own. Returns when parameters are written; those that the session holds
 * are updated when a parameter of their chunk is read next. Accumulated gradients are used up, also those of
 * the others. Errors: INVALID, naming the parameter, before anything has changed; those of NVMe and memory,
 * after which the states belong to no step, and every later step returns the error until they are loaded
 * again. */
strata_status strata_session_step(strata_session session, const strata_update* updates, size_t n);

/* ---- states ---- */

typedef struct strata_piece {
  size_t struct_size;
  const char* name;
  int64_t param, offset, n; /* elements [offset, offset + n) of the parameter */
  int64_t n_elems;          /* elements of the whole parameter */
} strata_piece;

/* Returns 0 to go on; anything else ends the call with STRATA_CANCELLED. */
typedef int32_t (*strata_visit_fn)(void* context, const strata_piece* piece, const float* values);
typedef int32_t (*strata_fill_fn)(void* context, const strata_piece* piece, float* values);

/* Tells where the parameters are, for the functions below; a step uses the addresses it is given. With n = 0
 * they are nowhere, and PARAM cannot be accessed. Valid until the next call; sealing counts as one. */
strata_status strata_session_bind(strata_session session, void* const* params, size_t n);

/* Calls `visit` with each element of a state of all parameters, in pieces of at most 65,536 elements, in
 * order within a parameter. Errors: UNSUPPORTED for a moment that the optimizer does not have. */
strata_status strata_session_visit(strata_session session, strata_state state, strata_visit_fn visit,
                                   void* context);

/* Sets each element of a state of all parameters, in the same order. After an error the states belong to no
 * step until all have been filled. Filling PARAM also writes the parameters themselves, rounded. */
strata_status strata_session_fill(strata_session session, strata_state state, strata_fill_fn fill,
                                  void* context);

/* Steps done, and, if `param_steps` is not null, in how many of them each of the `n` parameters was updated.
 */
strata_status strata_session_steps(strata_session session, int64_t* steps, int64_t* param_steps, size_t n);

/* Sets both after the states have been filled, which are then valid. */
strata_status strata_session_set_steps(strata_session session, int64_t steps, const int64_t* param_steps,
                                       size_t n);

/* Writes `dir`/step-NNNNNNNN as the strata command does: masters and moments as f32 safetensors, and a
 * manifest. Other checkpoints in `dir` stay, of which the oldest beyond `keep` are then removed (0: none). */
strata_status strata_session_save(strata_session session, const char* dir, int32_t keep);

/* Loads such a folder, of this or any other placement: states, parameters and step counts. Its digests are
 * checked before anything is changed: all of it is read once for that, and again to load it. */
strata_status strata_session_load(strata_session session, const char* folder);

/* ---- the rest ---- */

typedef struct strata_stats {
  size_t struct_size;
  uint64_t pinned_bytes, nvme_bytes;            /* used now */
  uint64_t peak_pinned_bytes, peak_nvme_bytes;  /* at most so far; the plan says the same */
  uint64_t nvme_read_bytes, nvme_written_bytes; /* since sealing */
  double nvme_read_seconds, nvme_write_seconds; /* during which the device was busy */
} strata_stats;

strata_status strata_session_stats(strata_session session, strata_stats* stats);

/* Writes what was planned and why, one sentence per line, into `text` of `size` bytes, ended by 0 and cut if
 * it is too long. `needed`, if not null, is set to the bytes of the whole text with its 0. */
strata_status strata_session_notes(strata_session session, char* text, size_t size, size_t* needed);

/* Gives back memory and files. The handle is then stale: every call with it returns STRATA_CLOSED. */
strata_status strata_session_close(strata_session session);

/* ---- activations ---- */

/* Bytes that leave the caller's memory in forward and come back in backward: mostly last in, first out. They
 * are in RAM as far as the budget goes, the oldest on NVMe. Writes begin before RAM is full, and what is
 * needed next is read ahead. 0 is never a handle; copies refer to the same activations. */
typedef uint64_t strata_activations;

typedef struct strata_activation_options {
  size_t struct_size;
  uint64_t pinned_bytes; /* allocated at once; 0: 40 % of what is free */
  uint64_t nvme_bytes;   /* at most; 0: as many as needed if there is a folder, else none */
  /* Folders on NVMe, over which bytes are spread; created if absent. The files have no names. */
  const char* const* nvme_dirs;
  size_t n_nvme_dirs;
  uint64_t page_bytes; /* moved as a whole; budgets are multiples of it; 0: chosen */
} strata_activation_options;

/* Errors: INVALID, naming the option; DOES_NOT_FIT if the machine has not the memory; OUT_OF_MEMORY. */
strata_status strata_activations_create(const strata_activation_options* options,
                                        strata_activations* activations);

/* Copies `n` bytes, and sets `*id`, which is never 0 and never used again. Waits for NVMe if there is no room
 * in RAM. Errors, after which the bytes are not there and all others are: INVALID if `n` is 0; DOES_NOT_FIT
 * with both numbers; those of NVMe if there is no room because writing fails. */
strata_status strata_activations_put(strata_activations activations, const void* bytes, uint64_t n,
                                     uint64_t* id);

/* Copies all `n` bytes of an id, which stay there, and begins to read those that were put before. Errors:
 * NOT_FOUND; INVALID if it has not `n` bytes; those of NVMe, naming the id, after which the call may be
 * repeated. */
strata_status strata_activations_get(strata_activations activations, uint64_t id, void* into, uint64_t n);

/* Begins to read an id as far as there is room, where the order is not last in, first out. */
strata_status strata_activations_prefetch(strata_activations activations, uint64_t id);

/* Forgets an id. Errors: NOT_FOUND. */
strata_status strata_activations_discard(strata_activations activations, uint64_t id);

typedef struct strata_activation_stats {
  size_t struct_size;
  uint64_t n_activations, activation_bytes;     /* there now */
  uint64_t pinned_bytes, nvme_bytes;            /* in whole pages, some in both; requests in flight count */
  uint64_t peak_pinned_bytes, peak_nvme_bytes;  /* at most so far */
  uint64_t n_gets, n_late_gets;                 /* calls, and how many waited for NVMe */
  uint64_t nvme_read_bytes, nvme_written_bytes; /* since creation */
  /* The time with requests in flight, summed over parts of the files that are busy at the same time: may
   * exceed the time that has passed. */
  double nvme_read_seconds, nvme_write_seconds;
} strata_activation_stats;

strata_status strata_activations_stats(strata_activations activations, strata_activation_stats* stats);

/* Gives back memory and files, at the end of calls that other threads are in. The handle is then stale. */
strata_status strata_activations_close(strata_activations activations);

/* ---- an optimizer without a session ---- */

/* Arrays of one parameter, of `n` elements each. */
typedef struct strata_arrays {
  size_t struct_size;
  int64_t n;
  strata_dtype dtype;          /* dtype of param */
  strata_dtype gradient_dtype; /* dtype of gradient */
  void* param;                 /* read and written */
  /* The bits of the f32 master beyond `param`: for F32 nothing (null); for BF16 its lower 16 bits; for F16
   * the whole f32. strata_arrays_init() sets it. */
  void* master;
  float *m, *v; /* null if the optimizer has no such moment */
  const void* gradient;
} strata_arrays;

/* Sets masters by `param` and moments to zero. */
strata_status strata_arrays_init(const strata_arrays* arrays, strata_optimizer optimizer);

/* One step, on the calling thread, in one pass over memory. `step` counts from 1. The bits are those of
 * strata_session_step(). */
strata_status strata_arrays_update(const strata_arrays* arrays, strata_optimizer optimizer,
                                   const strata_settings* settings, int64_t step);

/* ---- tensors of other libraries ---- */

typedef struct strata_tensor {
  size_t struct_size;
  void* data; /* its first element */
  strata_dtype dtype;
  int32_t n_dims;
  const int64_t* dims; /* the array of the DLPack tensor */
  int64_t n_elems;
  int32_t is_read_only;
  int32_t reserved;
} strata_tensor;

/* Describes a tensor that another library hands over by DLPack: `managed` is its DLManagedTensor, or, if
 * `is_versioned` is not 0, its DLManagedTensorVersioned. It stays the owner's, and nothing is deleted.
 * Errors: UNSUPPORTED for memory that is not the host's, for dtypes other than f32, bf16 and f16, for
 * elements that are not in row-major order without gaps, and for versions other than 1; INVALID. */
strata_status strata_tensor_from_dlpack(const void* managed, int32_t is_versioned, strata_tensor* tensor);

/* ---- configurations of DeepSpeed ---- */

/* The verdict on a key: TAKEN sets a key of strata; AUTO is "auto", which another program fills in;
 * MEANINGLESS changes no result here; REFUSED asks for something that strata does not do; UNKNOWN is no key
 * of DeepSpeed. */
typedef int32_t strata_ds_verdict;
enum {
  STRATA_DS_TAKEN = 0,
  STRATA_DS_AUTO = 1,
  STRATA_DS_MEANINGLESS = 2,
  STRATA_DS_REFUSED = 3,
  STRATA_DS_UNKNOWN = 4
};

typedef struct strata_ds_row {
  size_t struct_size;
  const char* key;   /* "zero_optimization.stage", as it was written */
  const char* value; /* JSON */
  strata_ds_verdict verdict;
  int32_t is_default;       /* 1: the file lacks the key, and DeepSpeed's default is not strata's */
  const char* strata_key;   /* "parallel.zero"; "" if there is none */
  const char* strata_value; /* JSON, which is also TOML; "" if nothing is set */
  const char* reason;
} strata_ds_row;

/* Returns 0 to go on; anything else ends the call with STRATA_CANCELLED. */
typedef int32_t (*strata_ds_row_fn)(void* context, const strata_ds_row* row);

/* Calls `row` for every key of a ds_config.json, whose text is `json`, in its order; texts are valid during
 * the call. A key that sets two keys has two rows. Errors: INVALID if the text is no JSON object, before any
 * row; UNSUPPORTED after all rows, naming every key that is refused or unknown. */
strata_status strata_ds_config_convert(const char* json, strata_ds_row_fn row, void* context);

#ifdef __cplusplus
}
#endif

#endif
