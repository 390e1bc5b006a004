#include "config/schema/sections.h"

namespace strata {
namespace {

using C = TrainConfig;

constexpr TrainKey kKeys[] = {
    {{.section = "parallel",
      .name = "ranks",
      .type = KeyType::integer,
      .default_text = "auto",
      .doc = "ranks that train together; auto = those that the launcher started, or 1",
      .example = "parallel.ranks=4",
      .allows_auto = true,
      .min = 1,
      .max = 65536},
     field<&C::parallel, &C::Parallel::ranks>},
    {{.section = "parallel",
      .name = "transport",
      .type = KeyType::choice,
      .default_text = "auto",
      .doc = "how ranks exchange data: threads of one process, or processes over MPI",
      .allows_auto = true,
      .choices = "threads|mpi"},
     field<&C::parallel, &C::Parallel::transport>},
    {{.section = "parallel",
      .name = "zero",
      .type = KeyType::integer,
      .default_text = "auto",
      .doc =
          "what ranks divide: 0 = nothing (DDP), 1 = optimizer states, 2 = and gradients, 3 = and parameters "
          "(FSDP); auto = 2, or 3 if that does not fit",
      .example = "parallel.zero=3",
      .allows_auto = true,
      .min = 0,
      .max = 3},
     field<&C::parallel, &C::Parallel::zero>},
    {{.section = "parallel",
      .name = "shard_ranks",
      .type = KeyType::integer,
      .default_text = "0",
      .doc = "ranks that hold one copy of the states together (HSDP), such as those of a node; 0 = all",
      .example = "parallel.shard_ranks=8",
      .min = 0,
      .max = 65536},
     field<&C::parallel, &C::Parallel::shard_ranks>},
    {{.section = "parallel",
      .name = "reduce",
      .type = KeyType::choice,
      .default_text = "each",
      .doc =
          "when gradients of ranks are added: after each micro-batch, with the bits of one rank, or once a "
          "step, which sends less",
      .choices = "each|once"},
     field<&C::parallel, &C::Parallel::reduce>},
    {{.section = "parallel",
      .name = "gather_ahead",
      .type = KeyType::integer,
      .default_text = "2",
      .doc = "chunks whose parameters are gathered while those before them are in use",
      .example = "parallel.gather_ahead=4",
      .min = 0,
      .max = 16},
     field<&C::parallel, &C::Parallel::gather_ahead>},
    {{.section = "parallel",
      .name = "patience",
      .type = KeyType::seconds,
      .default_text = "30s",
      .doc =
          "a rank of which nothing has been heard for so long, or that hangs, is given up: the others end "
          "the run; they name it after 5 to 8 seconds or half of that time, and one whose process has ended "
          "at once; without effect under torchrun",
      .example = "parallel.patience=5min",
      .min = 1,
      .max = 86400},
     field<&C::parallel, &C::Parallel::patience_s>},
};

}  // namespace

std::span<const TrainKey> parallel_keys() noexcept { return kKeys; }

}  // namespace strata
