#include <algorithm>
#include <cmath>
#include <limits>

#include <strata/dispatch/op.h>
#include <strata/kernels/subspace.h>

#include "adapters/lora_parts_check.h"
#include "subspace/dense.h"
#include "subspace/row_squares.h"
#include "subspace/subspace_iteration.h"

namespace strata::kernels {
STRATA_OP(find_basis, FindBasisArgs);

namespace {

using detail::BasisPart;
using detail::BasisSpace;

/// Where a part's basis begins in a tensor of all bases, and the part's number.
struct PartPlace {
  std::int64_t basis = 0;
  std::int64_t number = 0;
};

/// The previous basis as vectors, in f32.
void read_previous(const FindBasisArgs& a, const BasisPart& part, std::int64_t first, float* vectors) {
  const bool is_right = part.side == SubspaceSide::right;
  detail::dispatch_dtype(a.previous.dtype, [&]<class T>(std::type_identity<T>) {
    const T* const from = a.previous.as<T>() + first;
    for (std::int64_t j = 0; j < part.rank; ++j)
      for (std::int64_t i = 0; i < part.length(); ++i)
        vectors[j * part.length() + i] =
            to_f32(from[detail::basis_index(is_right, part.rank, part.length(), j, i)]);
  });
}

void write_basis(const FindBasisArgs& a, const BasisPart& part, std::int64_t first, const float* vectors) {
  const bool is_right = part.side == SubspaceSide::right;
  float* const to = a.basis.as<float>() + first;
  for (std::int64_t j = 0; j < part.rank; ++j)
    for (std::int64_t i = 0; i < part.length(); ++i)
      to[detail::basis_index(is_right, part.rank, part.length(), j, i)] = vectors[j * part.length() + i];
}

/// Leaves the basis in the vectors of `space`, and returns the captured share of the energy.
double find_vectors(const FindBasisArgs& a, const BasisPart& part, const BasisSpace& space,
                    std::int64_t first, double squares, ThreadPool& pool) {
  if (squares > 0.0 && a.method == SvdMethod::exact) {
    detail::ExactVectors out = {.squares = space.sums};
    (part.side == SubspaceSide::right ? out.right : out.left) = space.vectors;
    detail::exact_vectors(part.rows, part.rank, out);
    double captured = 0;
    for (std::int64_t i = 0; i < part.rank; ++i) captured = captured + space.sums[i];
    return captured / squares;
  }
  read_previous(a, part, first, space.products);
  detail::start_vectors(part, space, space.products, part.rank);
  return squares > 0.0 ? detail::iterate_subspace(part, space, squares, {}, pool) : 1.0;
}

void find_part(const FindBasisArgs& a, const BasisPart& part, const PartPlace& place, ThreadPool& pool) {
  const BasisSpace space = detail::basis_space(part, a.workspace.data);
  const double squares = detail::square_norm(part.rows, space.sums, pool);
  const std::int64_t n = part.rank * part.length();
  double energy = std::numeric_limits<double>::quiet_NaN();
  if (std::isfinite(squares)) {
    energy = find_vectors(a, part, space, place.basis, squares, pool);
    detail::choose_signs(space.vectors, part.rank, part.length());
  } else {
    std::fill_n(space.vectors, n, std::numeric_limits<float>::quiet_NaN());
  }
  write_basis(a, part, place.basis, space.vectors);
  a.energy.as<float>()[place.number] = static_cast<float>(std::min(energy, 1.0));
}

}  // namespace

void find_basis_host(const FindBasisArgs& a, ThreadPool& pool) {
  PartPlace place;
  for (const LoraPart& of : a.parts.all()) {
    const BasisPart part = detail::basis_part(a.g, of, a.side);
    find_part(a, part, place, pool);
    place.basis += part.rank * part.length();
    ++place.number;
  }
}

std::size_t find_basis_workspace_bytes(const LoraParts& parts, std::int64_t columns, SubspaceSide side,
                                       DType dtype) noexcept {
  std::size_t bytes = 0;
  for (const LoraPart& part : parts.all()) {
    const BasisPart of = {{nullptr, {part.rows, columns}, dtype}, part.rank, side};
    bytes = std::max(bytes, detail::basis_space(of, nullptr).bytes);
  }
  return bytes;
}

Status find_basis_async(Backend& backend, Stream& stream, const FindBasisArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.g), columns = dispatch::row_length(a.g);
  const detail::PartSums sums = detail::sums_of(a.parts);
  const std::int64_t elems = a.side == SubspaceSide::right ? sums.ranks * columns : sums.elems;
  dispatch::Check check("find_basis", "g", a.g);
  detail::check_parts(check, a.parts, rows);
  for (const LoraPart& part : a.parts.all())
    check.require(part.rank <= std::min(part.rows, columns), "a part of ", part.rows, " rows of ", columns,
                  " values has rank ", part.rank);
  detail::check_stored(check, "previous", a.previous, elems);
  check.elements("basis", a.basis, DType::f32, elems)
      .shape("energy", a.energy, DType::f32, {static_cast<std::int64_t>(a.parts.n)})
      .workspace(a.workspace, find_basis_workspace_bytes(a.parts, columns, a.side, a.g.dtype));
  STRATA_TRY(check.status());
  if (a.method == SvdMethod::exact && backend.info().kind == DeviceKind::cuda)
    return Status::error(Code::unsupported,
                         "find_basis: the exact method runs on the host; a GPU has the subspace method");
  return dispatch::enqueue(backend, stream, find_basis_op, a, {a.g, a.previous}, {a.basis, a.energy},
                           a.workspace);
}

}  // namespace strata::kernels
