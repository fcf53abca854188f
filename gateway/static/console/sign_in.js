// Passkeys are asked for by script alone, and the token of an invitation stands where only a script can read it.
"use strict";
{
  const tell = (form, words) => {
    const place = form.closest("[data-problem]");
    let told = place.querySelector("[data-told]");
    if (!told) {
      told = document.createElement("p");
      told.className = "way-wrong";
      told.dataset.told = "";
      told.setAttribute("role", "alert");
      place.prepend(told);
    }
    told.textContent = words;
  };
  const options = async (form) => {
    const csrf = form.querySelector("[name=csrfmiddlewaretoken]").value;
    const answer = await fetch(form.dataset.options, { method: "POST", headers: { "X-CSRFToken": csrf } });
    if (answer.status === 429) throw new Error("Too many attempts. Try again in some minutes.");
    if (!answer.ok || answer.redirected) throw new Error("It has been too long. Load the page again.");
    return (await answer.json()).publicKey;
  };
  const ask = async (form) => {
    if (!window.PublicKeyCredential?.parseRequestOptionsFromJSON) throw new Error("This browser is too old for passkeys.");
    if (form.dataset.passkey === "create") {
      const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(await options(form));
      return navigator.credentials.create({ publicKey });
    }
    const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(await options(form));
    return navigator.credentials.get({ publicKey });
  };
  for (const form of document.querySelectorAll("form[data-passkey]")) {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      try {
        form.elements.credential.value = JSON.stringify((await ask(form)).toJSON());
        form.submit();
      } catch (error) {
        const none = "No passkey was given. You can try again.";
        const where = "Passkeys need this console's host name, and https (or localhost).";
        tell(form, error.name === "SecurityError" ? where : error instanceof DOMException ? none : error.message);
      }
    });
  }
  const invitation = document.querySelector("form[data-token]");
  if (invitation && location.hash.length > 1) {
    invitation.elements.token.value = location.hash.slice(1);
    history.replaceState(null, "", location.pathname);
    invitation.submit();
  }
}
