// A table that is wider than the page becomes several below each other, each with the columns that name a row. They are
// made anew when the width changes.
(function () {
  'use strict';
  const whole = [...document.querySelectorAll('.scroll')].map((box) => [box, box.querySelector('table')]);

  // The fewest first columns that tell all rows apart.
  function names(rows) {
    const columns = rows[0].cells.length;
    for (let count = 1; count < columns; count += 1) {
      const seen = rows.slice(1).map((row) => JSON.stringify([...row.cells].slice(0, count).map((cell) => cell.textContent)));
      if (new Set(seen).size === seen.length) return count;
    }
    return 1;
  }

  function part(table, rows, columns) {
    const copy = table.cloneNode(false);
    for (const row of rows) {
      const line = copy.insertRow();
      for (const column of columns) line.append(row.cells[column].cloneNode(true));
    }
    return copy;
  }

  function fit(box, table) {
    box.replaceChildren(table);
    box.classList.remove('broken');
    if (box.scrollWidth <= box.clientWidth + 1) return;
    const rows = [...table.rows];
    const widths = [...rows[0].cells].map((cell) => cell.getBoundingClientRect().width);
    const count = names(rows);
    const head = widths.slice(0, count).reduce((sum, width) => sum + width, 0);
    const parts = [];
    let room = 0;
    widths.slice(count).forEach((width, n) => {
      if (width > room || !parts.length) {
        parts.push(widths.slice(0, count).map((_, column) => column));
        room = box.clientWidth - head;
      }
      parts[parts.length - 1].push(count + n);
      room -= width;
    });
    box.replaceChildren(...parts.map((columns) => part(table, rows, columns)));
    // A word that is wider than the page, such as a path, is broken.
    box.classList.toggle('broken', box.scrollWidth > box.clientWidth + 1);
  }

  const all = () => whole.forEach(([box, table]) => fit(box, table));
  all();
  let width = window.innerWidth;
  window.addEventListener('resize', () => {
    if (window.innerWidth !== width) {
      width = window.innerWidth;
      all();
    }
  });
})();
