"use strict";
// Draws the packed stories of a page of all incidents, opens the event that a link leads to, and
// filters rows. Texts are set as text, never read as markup; nothing is asked of anybody.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const island = document.getElementById("stories");
  const { last, told, packed } = island
    ? JSON.parse(island.textContent)
    : { last: -1, told: 0, packed: "" };
  let unpacked = null;

  // All stories: the dictionary's texts, the shapes, an element each, newest first.
  async function stories() {
    if (!unpacked) {
      const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
      const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
      unpacked = JSON.parse(await new Response(plain).text());
    }
    return unpacked;
  }

  function draw({ texts, shapes }, item, inSvg) {
    let next = 1;
    const own = () => {
      const value = item[next++];
      return typeof value === "number" ? texts[value] : value;
    };
    const given = (value, svg) =>
      Array.isArray(value)
        ? draw({ texts, shapes }, value, svg)
        : document.createTextNode(value);
    function build([tag, attributes, children], within) {
      const svg = within || tag === "svg";
      const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
      for (const [name, same] of attributes) {
        const value = same === null ? own() : same;
        if (name.startsWith("on") || (name === "href" && !value.startsWith("#"))) continue;
        node.setAttribute(name, value);
      }
      for (const child of children) {
        if (Array.isArray(child)) node.appendChild(build(child, svg));
        else for (let left = child; left > 0; left--) node.appendChild(given(own(), svg));
      }
      return node;
    }
    return build(shapes[item[0]], inSvg);
  }

  function filtered(container, rows, words) {
    const field = document.createElement("input");
    field.type = "search";
    field.placeholder = words;
    field.setAttribute("aria-label", words);
    field.addEventListener("input", () => {
      const wanted = field.value.toLowerCase();
      for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
    container.parentNode.insertBefore(field, container);
  }

  // What marks say is not packed: it stands in the events they lead to.
  function withTitles(story) {
    const lines = new Map();
    for (const line of story.querySelectorAll(".events summary"))
      lines.set(`#${line.parentNode.id}`, line);
    for (const mark of story.querySelectorAll("svg a[href^='#e']")) {
      const line = lines.get(mark.getAttribute("href"));
      if (!line) continue;
      const title = document.createElementNS(SVG, "title");
      title.textContent = [...line.children].map((part) => part.textContent).join(" ");
      mark.firstChild.appendChild(title);
    }
    return story;
  }

  function withFilters(root) {
    const events = root.querySelector(".events");
    if (events) filtered(events, events.children, "Only events with …");
    for (const markdown of root.querySelectorAll(".markdown")) withCopy(markdown);
  }

  // A page from a file may not always reach the clipboard: then the text is selected instead.
  function withCopy(markdown) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy as Markdown";
    button.addEventListener("click", async () => {
      const lines = [...markdown.children].map((line) => line.textContent.trimEnd());
      try {
        await navigator.clipboard.writeText(`${lines.join("\n")}\n`);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(markdown);
        button.textContent = "Selected: copy it with Ctrl-C";
      }
    });
    markdown.parentNode.insertBefore(button, markdown);
  }

  function openEvent(target) {
    for (let node = target; node; node = node.parentElement)
      if (node.tagName === "DETAILS") node.open = true;
    target.hidden = false;
    target.scrollIntoView({ block: "center" });
  }

  const list = document.getElementById("overview");
  const place = document.getElementById("story");
  const title = document.title;
  let shown = -1;

  async function show(number) {
    if (number === shown) return;
    shown = number;
    place.textContent = "";
    list.hidden = number >= 0;
    document.title = title;
    if (number >= 0) {
      const back = document.createElement("a");
      back.href = "#";
      back.className = "back";
      back.textContent = "← all incidents";
      place.append(back);
      window.scrollTo(0, 0);
      let story;
      try {
        const all = await stories();
        story = withTitles(draw(all, all.elements[last - number], false));
      } catch (error) {
        story = document.createElement("p");
        story.textContent = `This browser can't draw the story (${error.message}).`;
      }
      if (shown !== number) return;
      place.append(story);
      withFilters(place);
      const name = place.querySelector("h1");
      if (name) document.title = `${name.textContent} · ${title}`;
    }
  }

  function follow() {
    const hash = location.hash.slice(1);
    if (/^e\d+$/.test(hash)) {
      const target = document.getElementById(hash);
      if (target) openEvent(target);
      return;
    }
    if (!place) return;
    const number = /^i\d+$/.test(hash) ? Number(hash.slice(1)) : -1;
    show(number > last - told && number <= last ? number : -1);
  }

  if (list) {
    const rows = list.querySelectorAll("section:last-child tbody tr");
    if (rows.length > 10) filtered(rows[0].closest(".wide"), rows, "Only incidents with …");
  } else {
    withFilters(document);
  }
  addEventListener("hashchange", follow);
  // The same link twice changes nothing in the address, and opens its event all the same.
  addEventListener("click", (event) => {
    const link = event.target.closest && event.target.closest("a[href^='#e']");
    if (link && link.getAttribute("href") === location.hash) follow();
  });
  follow();
})();
