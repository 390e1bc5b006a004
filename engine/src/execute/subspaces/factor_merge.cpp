#include "execute/subspaces/factor_merge.h"

#include <algorithm>
#include <array>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr std::int64_t kBlock = 2048;  // elements of a matrix that one thread changes at a time

// The columns [first, first + n) of one row of a matrix.
struct RowPart {
  std::int64_t row = 0, first = 0, n = 0;
};

// sum += x[0] q[0] + x[1] q[1] + ..., one after the other, where q[k] is a row of A.
void add_rows(const float* x, const float* q, std::int64_t rank, std::int64_t columns, std::int64_t n,
              float* sum) {
  std::int64_t k = 0;
  for (; k + 4 <= rank; k += 4) {
    const float x0 = x[k], x1 = x[k + 1], x2 = x[k + 2], x3 = x[k + 3];
    const float *q0 = q + k * columns, *q1 = q0 + columns, *q2 = q1 + columns, *q3 = q2 + columns;
    for (std::int64_t c = 0; c < n; ++c) sum[c] = sum[c] + x0 * q0[c] + x1 * q1[c] + x2 * q2[c] + x3 * q3[c];
  }
  for (; k < rank; ++k)
    for (std::int64_t c = 0; c < n; ++c) sum[c] += x[k] * q[k * columns + c];
}

void add_to_row(const FactorMerge::Product& product, const RowPart& at, float* values) {
  std::array<float, kBlock> sum;
  std::int64_t ranks = 0, elems = 0;  // sums over the parts before
  for (const LoraPart& part : product.group->parts.all()) {
    const std::int64_t row = at.row - part.first_row;
    if (row >= 0 && row < part.rows) {
      std::fill_n(sum.begin(), at.n, 0.0f);
      add_rows(product.b.data() + elems + row * part.rank,
               product.a.data() + ranks * product.columns + at.first, part.rank, product.columns, at.n,
               sum.data());
      for (std::int64_t c = 0; c < at.n; ++c)
        values[c] += product.group->scale * sum[static_cast<std::size_t>(c)];
    }
    ranks += part.rank;
    elems += part.rows * part.rank;
  }
}

// Elements [begin, end) of the matrix, which are at `values`.
void add_to_block(const FactorMerge::Product& product, std::int64_t begin, std::int64_t end, float* values) {
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t row = i / product.columns, first = i % product.columns;
    const std::int64_t n = std::min(end - i, product.columns - first);
    add_to_row(product, {row, first, n}, values + (i - begin));
    i += n;
  }
}

bool is_zero(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
}

// The index of the tensor of that name; -1 if there is none.
std::int32_t find_tensor(const RunPlan& plan, std::string_view name) {
  const auto& specs = plan.tensors.specs;
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const LayoutTensor& spec) { return spec.name == name; });
  return found == specs.end() ? -1 : static_cast<std::int32_t>(found - specs.begin());
}
const Shape& shape_of(const RunPlan& plan, std::int32_t tensor) {
  return plan.tensors.shapes[static_cast<std::size_t>(tensor)];
}

std::string problem_of_factor(const RunPlan& plan, const std::string& name, std::int64_t elems) {
  const std::int32_t tensor = find_tensor(plan, name);
  if (tensor < 0) return str("\n  ", name, " is no parameter of this run");
  const std::int64_t found = shape_of(plan, tensor).n_elems();
  return found == elems ? std::string()
                        : str("\n  ", name, " has ", found, " elements; the adapter needs ", elems);
}

std::string problems_of(const RunPlan& plan, const LoraGroup& group) {
  if (!group.has_basis()) return str("\n  ", group.weight, ": both factors of the adapter are trained");
  const std::int32_t matrix = find_tensor(plan, group.weight);
  if (matrix < 0 || shape_of(plan, matrix).rank != 2)
    return str("\n  ", group.weight, " is no matrix of this run");
  const Shape& shape = shape_of(plan, matrix);
  std::string problems = problem_of_factor(plan, group.a, group.ranks() * shape.dim(1)) +
                         problem_of_factor(plan, group.b, group.elems());
  for (const LoraPart& part : group.parts.all())
    if (part.first_row < 0 || part.first_row + part.rows > shape.dim(0))
      problems += str("\n  ", group.weight, " has ", shape.dim(0), " rows; the adapter has rows ",
                      part.first_row, " to ", part.first_row + part.rows);
  return problems;
}

}  // namespace

void add_product(const FactorMerge::Product& product, std::int64_t offset, std::span<float> values,
                 ThreadPool& pool) {
  const auto n = static_cast<std::int64_t>(values.size());
  pool.parallel_for((n + kBlock - 1) / kBlock, [&](std::int64_t block) {
    const std::int64_t begin = block * kBlock, end = std::min(n, begin + kBlock);
    add_to_block(product, offset + begin, offset + end, values.data() + begin);
  });
}

void FactorMerge::add(const LoraGroup& group, std::int64_t columns) {
  products_.push_back({&group, columns, {}, {}});
}

std::vector<std::string> FactorMerge::factors() const {
  std::vector<std::string> names;
  for (const Product& product : products_) names.insert(names.end(), {product.group->a, product.group->b});
  return names;
}

VisitState FactorMerge::reader() {
  for (Product& product : products_) {
    product.a.resize(static_cast<std::size_t>(product.group->ranks() * product.columns));
    product.b.resize(static_cast<std::size_t>(product.group->elems()));
  }
  return [this](const StatePiece& piece, std::span<const float> values) {
    for (Product& product : products_)
      for (const auto& [name, factor] :
           {std::pair(&product.group->a, &product.a), std::pair(&product.group->b, &product.b)})
        if (*name == piece.name) std::copy(values.begin(), values.end(), factor->begin() + piece.offset);
    return Status::ok();
  };
}

void FactorMerge::drop_zeros() {
  std::erase_if(products_, [](const Product& product) {
    return is_zero(product.group->trained == LoraTrained::a ? product.a : product.b);
  });
}

std::vector<std::string> FactorMerge::matrices() const {
  std::vector<std::string> names;
  for (const Product& product : products_) names.push_back(product.group->weight);
  return names;
}

std::vector<std::string> FactorMerge::trained() const {
  std::vector<std::string> names;
  for (const Product& product : products_) names.push_back(product.group->factor());
  return names;
}

FillState FactorMerge::editor(ThreadPool& pool) const {
  return [this, &pool](const StatePiece& piece, std::span<float> values) {
    for (const Product& product : products_)
      if (product.group->weight == piece.name) add_product(product, piece.offset, values, pool);
    return Status::ok();
  };
}

Result<std::vector<FactorMerge>> merges_by_chunk(const RunPlan& plan, std::span<const LoraGroup> groups) {
  std::string problems;
  for (const LoraGroup& group : groups) problems += problems_of(plan, group);
  if (!problems.empty()) return Status::error(Code::invalid, str("factors cannot be merged:", problems));
  std::map<ChunkId, FactorMerge> of_chunk;
  for (const LoraGroup& group : groups) {
    const std::int32_t tensor = find_tensor(plan, group.weight);
    of_chunk[plan.layout.slice(tensor).chunk].add(group, shape_of(plan, tensor).dim(1));
  }
  std::vector<FactorMerge> merges;
  for (auto& [chunk, merge] : of_chunk) merges.push_back(std::move(merge));
  return merges;
}

}  // namespace strata::detail
